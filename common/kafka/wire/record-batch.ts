import { crc32c } from '@node-rs/crc32';
import type { Codec } from './codecs.ts';

/**
 * Kafka's record batches, version 2 of the format (kafka.apache.org/documentation/#recordbatch), which every broker
 * since 0.11 writes.
 * We read them because the reader of kafkajs 2.2.4
 * - returns records of aborted transactions if several were open at once (filterAbortedMessages.js:45 starts one
 *   transaction per record in the order of the broker's list, which is not the order of their starts; Java's consumer
 *   starts all that have begun), so the result depends on where the fetch began;
 * - fails for ever on a record batch of about 150,000 records (decodeMessages.js:28 passes each as an argument of a
 *   call: stack exceeded, not retried);
 * - needs one fetch per offset that compaction emptied at the end of a record batch, and never leaves an empty record
 *   batch at the end of a log;
 * - holds all partitions of a response decompressed at once, and every record keeps the whole response in memory;
 * - ignores checksums.
 */
export type BatchHeader = ReturnType<typeof batchHeader>;

/** Bytes before the records. */
export const HEADER_BYTES = 61;
/** Every format has its length and its version within so many bytes. */
const LEAST_BYTES = 17;
const CODECS: readonly (Codec | undefined)[] = [undefined, 'gzip', 'snappy', 'lz4', 'zstd'];

/** Returns the bytes of the batch at that place. Undefined if it is incomplete. */
export function batchSize(data: Buffer, at: number): number | undefined {
  if (at + LEAST_BYTES > data.length) return undefined;
  const size = 12 + data.readInt32BE(at + 8);
  return at + size > data.length ? undefined : size;
}

/**
 * Returns the header of a complete batch. Throws if its bytes differ from what was written: the checksum covers
 * everything after itself.
 */
export function batchHeader(batch: Buffer) {
  if (batch[16] !== 2) throw new Error(`a record batch of format ${batch[16]}`);
  if (batch.length < HEADER_BYTES) throw new Error(`a record batch of ${batch.length} bytes`);
  if (crc32c(batch.subarray(21)) !== batch.readUInt32BE(17))
    throw new Error('a record batch does not match its checksum');
  const attributes = batch.readInt16BE(21);
  const codec = attributes & 0x07;
  if (codec >= CODECS.length) throw new Error(`unknown compression ${codec}`);
  const baseOffset = Number(batch.readBigInt64BE(0));
  return {
    baseOffset,
    lastOffset: baseOffset + batch.readInt32BE(23),
    baseTimestamp: Number(batch.readBigInt64BE(27)),
    /** of the whole batch if the broker set the time (LogAppendTime), else undefined */
    appendTime: (attributes & 0x08) === 0 ? undefined : Number(batch.readBigInt64BE(35)),
    codec: CODECS[codec],
    producerId: batch.readBigInt64BE(43),
    transactional: (attributes & 0x10) !== 0,
    control: (attributes & 0x20) !== 0,
    /** number of records; with compaction fewer than offsets */
    count: batch.readInt32BE(57),
  };
}

type FetchedHeaders = readonly (readonly [name: string, value: Buffer | null])[];

/**
 * A record. Its key and value are sliced from its record batch on demand. Two buffers kept per record would cost more
 * in garbage collection than reading them (5 us an event, as much as all JavaScript takes now).
 */
export class FetchedRecord {
  readonly offset: number;
  /** unix milliseconds, -1 = none */
  readonly time: number;
  /** as written; a name may occur several times */
  readonly headers: FetchedHeaders;
  /** what it takes in memory, about */
  readonly bytes: number;
  /** whether the value has an end that is not kept */
  readonly isCut: boolean;
  readonly #data: Buffer;
  readonly #key: number;
  readonly #keyEnd: number;
  readonly #value: number;
  readonly #valueEnd: number;

  /** positions of key and value in data; a begin of -1 is null */
  constructor(
    offset: number,
    time: number,
    headers: FetchedHeaders,
    bytes: number,
    data: Buffer,
    [key, keyEnd]: Span,
    [value, valueEnd, isCut = false]: Span,
  ) {
    this.offset = offset;
    this.time = time;
    this.headers = headers;
    this.bytes = bytes;
    this.isCut = isCut;
    this.#data = data;
    this.#key = key;
    this.#keyEnd = keyEnd;
    this.#value = value;
    this.#valueEnd = valueEnd;
  }

  get key(): Buffer | null {
    return this.#key < 0 ? null : this.#cut(this.#key, this.#keyEnd);
  }

  get value(): Buffer | null {
    return this.#value < 0 ? null : this.#cut(this.#value, this.#valueEnd);
  }

  #cut(start: number, end: number): Buffer {
    if (end > this.#data.length) throw new Error(`the record at offset ${this.offset} was already released`);
    return this.#data.subarray(start, end);
  }
}

/** begin and end of what is kept */
type Span = readonly [begin: number, end: number, isCut?: boolean];

const NULL: Span = [-1, -1];
const NO_HEADERS: FetchedHeaders = Object.freeze([]);

/** A producer may write any 64 bits as a time. A time beyond exact integers becomes this one, in the year 287,396. */
const LATEST_TIME = Number.MAX_SAFE_INTEGER;

/**
 * Memory of a record beside its bytes, with its places in lists, and of each header; bytes. Measured with 200,000
 * records in an inbox, heap after a collection, node 24: 143 without headers, 128 to 134 more for each of one to five.
 */
const RECORD_OVERHEAD = 150;
const HEADER_OVERHEAD = 150;

/** Attributes, time, offset, the lengths of key and value, and the number of headers take a byte each. */
const LEAST_RECORD = 6;

/** So many records are read in one turn of the event loop: 2 to 4 ms, if nothing is kept of them. */
const RECORDS_AT_ONCE = 20_000;

/** How much may be kept, bytes; shared by the partitions of a response. */
export interface Budget {
  left: number;
  readonly maxRecordBytes: number;
}

/**
 * Reads the records of one batch from its decompressed bytes, in any pieces, into `records`. It begins at offset `from`
 * and ends when the budget is used up, after at least one record; the rest is fetched again. Of a record above
 * maxRecordBytes it keeps only the first maxRecordBytes + 1 bytes of the value and no headers, and never holds it
 * whole. It keeps no headers either that would take more than maxRecordBytes: a header of two bytes takes 150 bytes
 * of memory.
 */
export function recordReader(header: BatchHeader, from: number, budget: Budget, records: FetchedRecord[]) {
  const { maxRecordBytes } = budget;
  let read = 0;
  let waiting: Buffer[] = [];
  let waitingBytes = 0;
  /** no complete record is possible before that many bytes */
  let needed = 1;
  let toSkip = 0;
  let isPaused = false;
  return {
    push,
    /** whether the last push has left records unread to let other work run: push nothing to go on */
    isPaused: (): boolean => isPaused,
    /** whether all records were read */
    isDone: (): boolean => read === header.count && toSkip === 0,
  };

  /**
   * Takes the next decompressed bytes of the batch. Returns false if it needs no more: all records are read, or the
   * budget is used up. Throws if they are not records.
   */
  function push(chunk: Buffer): boolean {
    let data = chunk;
    if (toSkip > 0) {
      const skipped = Math.min(toSkip, data.length);
      toSkip -= skipped;
      data = data.subarray(skipped);
    }
    if (data.length > 0) waiting.push(data);
    waitingBytes += data.length;
    if (waitingBytes < needed) return true;
    data = waiting.length === 1 ? waiting[0]! : Buffer.concat(waiting, waitingBytes);
    const cursor = { data, at: 0 };
    needed = 1;
    const pauseAt = read + RECORDS_AT_ONCE;
    while (read < header.count && read < pauseAt) {
      if (budget.left <= 0) return false;
      const start = cursor.at;
      const length = varint(cursor);
      if (length === undefined) {
        cursor.at = start;
        break;
      }
      if (length < LEAST_RECORD) throw new Error(`a record of ${length} bytes`);
      const end = cursor.at + length;
      if (length > maxRecordBytes && data.length < end) {
        if (data.length - cursor.at <= maxRecordBytes) {
          // the length, and one byte more behind it than may be kept; a record of this length has as many
          needed = cursor.at - start + maxRecordBytes + 1;
          cursor.at = start;
          break;
        }
        add(cursor, data.length, true);
        toSkip = end - data.length;
        cursor.at = data.length;
      } else if (end > data.length) {
        needed = end - start;
        cursor.at = start;
        break;
      } else {
        add(cursor, end, length > maxRecordBytes);
        cursor.at = end;
      }
      read++;
    }
    waiting = cursor.at === data.length ? [] : [data.subarray(cursor.at)];
    waitingBytes = data.length - cursor.at;
    isPaused = read === pauseAt && waitingBytes > 0;
    return read < header.count || toSkip > 0;
  }

  /** Reads one record; `end` is its end, or the end of the available part. */
  function add(cursor: Cursor, end: number, cut: boolean): void {
    const begin = cursor.at++;
    const timestamp = need(varlong(cursor));
    const offset = header.baseOffset + need(varint(cursor));
    // the producer writes it, and brokers do not check all of them: it might be that of another record
    if (offset < from || offset <= (records.at(-1)?.offset ?? -1) || offset > header.lastOffset) return;
    const time = Math.max(-LATEST_TIME, Math.min(header.appendTime ?? header.baseTimestamp + timestamp, LATEST_TIME));
    const key = cut ? cutSpan(cursor, end, maxRecordBytes) : span(cursor, end);
    const value = cut ? cutSpan(cursor, end, maxRecordBytes) : span(cursor, end);
    const kept = cut ? NO_HEADERS : headers(cursor, end, maxRecordBytes / HEADER_OVERHEAD);
    const bytes = RECORD_OVERHEAD + HEADER_OVERHEAD * kept.length + Math.min(end - begin, maxRecordBytes);
    records.push(new FetchedRecord(offset, time, kept, bytes, cursor.data, key, value));
    budget.left -= bytes;
  }
}

/** A field of a record that is incomplete, or of which only a part is kept. Empty if what is there ends before it. */
function cutSpan(cursor: Cursor, end: number, maxRecordBytes: number): Span {
  const length = cursor.at < end ? varint(cursor) : undefined;
  if (length === undefined) return [end, end, true];
  if (length < 0) return NULL;
  const start = cursor.at;
  cursor.at = Math.min(start + length, end);
  const stop = Math.min(cursor.at, start + maxRecordBytes + 1);
  return [start, stop, stop < start + length];
}

interface Cursor {
  readonly data: Buffer;
  at: number;
}

function need(value: number | undefined): number {
  if (value === undefined) throw new Error('a record ends inside a number');
  return value;
}

function span(cursor: Cursor, end: number): Span {
  const length = need(varint(cursor));
  if (length < 0) return NULL;
  const start = cursor.at;
  cursor.at += length;
  if (cursor.at > end) throw new Error('a field is longer than its record');
  return [start, cursor.at];
}

function bytes(cursor: Cursor, end: number): Buffer | null {
  const [start, stop] = span(cursor, end);
  return start < 0 ? null : cursor.data.subarray(start, stop);
}

function headers(cursor: Cursor, end: number, most: number): FetchedHeaders {
  const count = need(varint(cursor));
  if (count <= 0 || count > most) return NO_HEADERS;
  const list: [string, Buffer | null][] = [];
  for (let i = 0; i < count; i++) list.push([bytes(cursor, end)?.toString('utf8') ?? '', bytes(cursor, end)]);
  return list;
}

/** Returns a zigzag varint of up to 32 bits. Undefined if the bytes end first. */
function varint(cursor: Cursor): number | undefined {
  const { data } = cursor;
  let result = 0;
  for (let shift = 0; shift < 35; shift += 7) {
    const byte = data[cursor.at++];
    if (byte === undefined) return undefined;
    result |= (byte & 0x7f) << shift;
    if (byte < 0x80) return (result >>> 1) ^ -(result & 1);
  }
  throw new Error('a number has more than 32 bits');
}

/** Returns a zigzag varint of up to 64 bits as a number; differences of times are exact. */
function varlong(cursor: Cursor): number | undefined {
  const { data } = cursor;
  let low = 0;
  let high = 0;
  for (let i = 0; i < 10; i++) {
    const byte = data[cursor.at++];
    if (byte === undefined) return undefined;
    if (i < 4) low += (byte & 0x7f) * 2 ** (7 * i);
    else high += (byte & 0x7f) * 2 ** (7 * (i - 4));
    if (byte < 0x80) {
      const negative = low % 2 === 1;
      const half = high * 2 ** 27 + Math.floor(low / 2);
      return negative ? -half - 1 : half;
    }
  }
  throw new Error('a number has more than 64 bits');
}
