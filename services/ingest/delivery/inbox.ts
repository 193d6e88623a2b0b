import type { Record } from '../evaluate/record.ts';

export interface HeldRecord extends Record {
  /** what it takes in memory, about */
  readonly bytes: number;
}

/** Records of one partition, by offset. All offsets up to `to` were fetched; those without a record are holes. */
export interface Fetched {
  readonly to: number;
  readonly records: readonly HeldRecord[];
  /** called when all of the records are written: nobody reads them again. What is dropped is left to V8 */
  readonly free?: () => void;
}

export interface Cut {
  readonly first: number;
  readonly last: number;
  readonly records: readonly HeldRecord[];
  readonly bytes: number;
}

export interface CutLimits {
  readonly maxRecords: number;
  readonly maxBytes: number;
}

/**
 * The queue between fetching and writing of one partition. Pure: knows neither Kafka nor timers.
 * Invariant: it covers the offsets `next` to `end - 1` without a gap; an offset without a record has none in Kafka.
 */
export class Inbox {
  /** first offset of the next cut */
  next: number;
  /** the first offset of the last cut while that is being written, else `next` */
  written: number;
  /** where the next fetch continues */
  end: number;
  /** bytes of waiting records */
  bytes = 0;
  #cutBytes = 0;
  readonly #records: HeldRecord[] = [];
  /** fetches with records that are not written yet */
  readonly #held: Fetched[] = [];

  constructor(start: number) {
    this.next = this.written = this.end = start;
  }

  /** bytes of waiting records, and of those cut and not yet released */
  get heldBytes(): number {
    return this.bytes + this.#cutBytes;
  }

  get size(): number {
    return this.#records.length;
  }

  /**
   * Takes what it has not taken before. If that begins after the last fetch's end, the offsets between have no record.
   */
  offer(fetched: Fetched): void {
    if (fetched.to < this.end) return;
    for (const record of fetched.records) {
      if (record.offset < this.end) continue;
      this.#records.push(record);
      this.bytes += record.bytes;
    }
    this.end = fetched.to + 1;
    this.#held.push(fetched);
  }

  /** The last cut is written: nobody holds it any more. */
  release(): void {
    this.#cutBytes = 0;
    this.written = this.next;
    const unwritten = this.#held.findIndex(({ to }) => to >= this.next);
    for (const { free } of this.#held.splice(0, unwritten < 0 ? this.#held.length : unwritten)) free?.();
  }

  /** The next batch within the limits (one record at least). Undefined if nothing was fetched. */
  cut({ maxRecords, maxBytes }: CutLimits): Cut | undefined {
    if (this.end === this.next) return undefined;
    let count = 0;
    let bytes = 0;
    while (count < this.size && count < maxRecords) {
      const size = this.#records[count]!.bytes;
      if (count > 0 && bytes + size > maxBytes) break;
      bytes += size;
      count++;
    }
    return this.#take(count, count === this.size ? this.end - 1 : this.#records[count - 1]!.offset, bytes);
  }

  /** The batch that ends at `last` exactly. Undefined until that was fetched. */
  cutAt(last: number): Cut | undefined {
    if (this.end <= last) return undefined;
    let count = 0;
    let bytes = 0;
    while (count < this.size && this.#records[count]!.offset <= last) {
      bytes += this.#records[count]!.bytes;
      count++;
    }
    return this.#take(count, last, bytes);
  }

  #take(count: number, last: number, bytes: number): Cut {
    const records = this.#records.splice(0, count);
    const cut: Cut = { first: this.next, last, records, bytes };
    this.bytes -= bytes;
    this.#cutBytes = bytes;
    this.next = last + 1;
    return cut;
  }
}
