import { HEADER_OVERHEAD, RECORD_OVERHEAD } from '../../common/kafka/record-batch.ts';
import type { Record } from './record.ts';

/**
 * Records of one partition in the order of their offsets, waiting to be cut into batches. Offsets up to `to` were
 * fetched; those without a record are holes.
 */
export interface Fetched {
  readonly to: number;
  readonly records: readonly Record[];
  /** called when all of the records are written: nobody reads them again */
  readonly free?: () => void;
}

export interface Cut {
  readonly first: number;
  readonly last: number;
  readonly records: readonly Record[];
  readonly bytes: number;
}

export interface CutLimits {
  readonly maxRecords: number;
  readonly maxBytes: number;
}

/** What it takes in memory. */
export function recordBytes({ key, value, headers }: Record): number {
  let size = RECORD_OVERHEAD + HEADER_OVERHEAD * headers.length + (value?.length ?? 0) + (key?.length ?? 0);
  for (const [name, content] of headers) size += name.length + (content?.length ?? 0);
  return size;
}

/**
 * The queue between fetching and writing of one partition. Pure: knows neither Kafka nor timers.
 * Invariant: what is in it covers the offsets `next` to `end - 1` without a hole of its own; a hole has no record in
 * Kafka.
 */
export function createInbox(start: number) {
  let next = start;
  let written = start;
  let end = start;
  let bytes = 0;
  let cutBytes = 0;
  let head = 0;
  let records: Record[] = [];
  /** of the same places */
  let sizes: number[] = [];
  /** fetches with records that are not written yet */
  const held: Fetched[] = [];

  return {
    get next() {
      return next;
    },
    /** the first offset of the last cut while that is being written, else `next` */
    get written() {
      return written;
    },
    /** where the next fetch continues */
    get end() {
      return end;
    },
    /** what waits */
    get bytes() {
      return bytes;
    },
    /** what waits, and what was cut and not yet released */
    get heldBytes() {
      return bytes + cutBytes;
    },
    get size() {
      return records.length - head;
    },

    /**
     * Takes what of it was not taken before. Where it begins after the last fetch's end, the offsets between hold no
     * record.
     */
    offer(fetched: Fetched): void {
      if (fetched.to < end) return;
      for (const record of fetched.records) {
        if (record.offset < end) continue;
        const size = recordBytes(record);
        records.push(record);
        sizes.push(size);
        bytes += size;
      }
      end = fetched.to + 1;
      held.push(fetched);
    },

    /** The last cut is written: nobody holds it any more. */
    release(): void {
      cutBytes = 0;
      written = next;
      const unwritten = held.findIndex(({ to }) => to >= next);
      for (const { free } of held.splice(0, unwritten < 0 ? held.length : unwritten)) free?.();
    },

    /** The next batch within the limits (one record at least), or undefined where nothing was fetched. */
    cut({ maxRecords, maxBytes }: CutLimits): Cut | undefined {
      if (end === next) return undefined;
      let count = 0;
      let size = 0;
      while (head + count < records.length && count < maxRecords) {
        const recordSize = sizes[head + count]!;
        if (count > 0 && size + recordSize > maxBytes) break;
        size += recordSize;
        count++;
      }
      return take(count, head + count === records.length ? end - 1 : records[head + count - 1]!.offset, size);
    },

    /** The batch that ends at `last` exactly, or undefined while that was not fetched yet. */
    cutAt(last: number): Cut | undefined {
      if (end <= last) return undefined;
      let count = 0;
      let size = 0;
      while (head + count < records.length && records[head + count]!.offset <= last) {
        size += sizes[head + count]!;
        count++;
      }
      return take(count, last, size);
    },
  };

  function take(count: number, last: number, size: number): Cut {
    const cut: Cut = { first: next, last, records: records.slice(head, head + count), bytes: size };
    head += count;
    if (head > 1024 && head * 2 > records.length) {
      records = records.slice(head);
      sizes = sizes.slice(head);
      head = 0;
    }
    bytes -= size;
    cutBytes = size;
    next = last + 1;
    return cut;
  }
}

export type Inbox = ReturnType<typeof createInbox>;
