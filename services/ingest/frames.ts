import type { Record } from './record.ts';

/**
 * The columns of a frame, one RowBinary row per message: the structure argument of file() and input().
 * Messages are framed, never joined as text: `{"a":` in one and its rest in the next would make one valid row,
 * `{..}{..}` in one message two. RowBinary: integers little-endian, strings and arrays prefixed with their LEB128 length.
 * https://clickhouse.com/docs/interfaces/formats/RowBinary
 */
export const FRAME_STRUCTURE =
  'offset UInt64, record_time Int64, given_reason String, given_detail String, key Nullable(String), headers Array(Tuple(name String, value Nullable(String))), probe String, original String, value String';

export interface Frame {
  readonly record: Record;
  /** JSON text of the event; of a dead letter by its form alone, the message as it came */
  readonly value: Uint8Array;
  /** the message as it came, where value is another text of it; empty = value is the message */
  readonly original: Uint8Array;
  /** '' = to be judged by the mapping SQL */
  readonly reason: string;
  readonly detail: string;
  /** '' = none; see clickhouse/sources/envelope */
  readonly probe: string;
}

/**
 * Bytes of one buffer of frames, unless a single frame is larger. The allocator takes pieces of this size from memory that it had before; those of
 * a whole batch come from the system, and their pages alone cost 2 to 5 us per edge event.
 */
const PIECE_BYTES = 1024 * 1024;

/** Encodes frames into buffers which one after the other are the rows. */
export function encodeFrames(frames: readonly Frame[]): Buffer[] {
  const pieces: Buffer[] = [];
  for (let first = 0; first < frames.length;) {
    let size = 0;
    let next = first;
    for (; next < frames.length; next++) {
      const more = frameSize(frames[next]!);
      if (size > 0 && size + more > PIECE_BYTES) break;
      size += more;
    }
    const piece = Buffer.allocUnsafeSlow(size);
    for (let at = 0; first < next; first++) at = writeFrame(piece, at, frames[first]!);
    pieces.push(piece);
  }
  return pieces;
}

function frameSize({ record, value, original, reason, detail, probe }: Frame): number {
  let size = 16 + stringSize(Buffer.byteLength(reason)) + stringSize(Buffer.byteLength(detail)) + 1 + stringSize(Buffer.byteLength(probe)) + stringSize(original.length) + stringSize(value.length);
  if (record.key !== null) size += stringSize(record.key.length);
  size += varintSize(record.headers.length);
  for (const [name, header] of record.headers) size += stringSize(Buffer.byteLength(name)) + 1 + (header === null ? 0 : stringSize(header.length));
  return size;
}

function writeFrame(out: Buffer, start: number, { record, value, original, reason, detail, probe }: Frame): number {
  let at = writeUInt64(out, start, record.offset);
  at = writeInt64(out, at, record.time);
  at = writeText(out, at, reason);
  at = writeText(out, at, detail);
  at = writeNullable(out, at, record.key);
  at = writeVarint(out, at, record.headers.length);
  for (const [name, header] of record.headers) at = writeNullable(out, writeText(out, at, name), header);
  at = writeText(out, at, probe);
  at = writeBytes(out, at, original);
  return writeBytes(out, at, value);
}

const stringSize = (length: number): number => varintSize(length) + length;

function varintSize(n: number): number {
  let size = 1;
  for (let rest = n; rest >= 0x80; rest = Math.floor(rest / 0x80)) size++;
  return size;
}

function writeVarint(out: Buffer, start: number, n: number): number {
  let at = start;
  let rest = n;
  while (rest >= 0x80) {
    out[at++] = (rest & 0x7f) | 0x80;
    rest = Math.floor(rest / 0x80);
  }
  out[at++] = rest;
  return at;
}

function writeUInt64(out: Buffer, at: number, n: number): number {
  out.writeUInt32LE(n % 0x1_0000_0000, at);
  return out.writeUInt32LE(Math.floor(n / 0x1_0000_0000), at + 4);
}

function writeInt64(out: Buffer, at: number, n: number): number {
  return out.writeBigInt64LE(BigInt(n), at);
}

function writeText(out: Buffer, start: number, text: string): number {
  if (text === '') {
    out[start] = 0;
    return start + 1;
  }
  const at = writeVarint(out, start, Buffer.byteLength(text));
  return at + out.write(text, at);
}

function writeBytes(out: Buffer, start: number, bytes: Uint8Array): number {
  const at = writeVarint(out, start, bytes.length);
  out.set(bytes, at);
  return at + bytes.length;
}

function writeNullable(out: Buffer, at: number, bytes: Uint8Array | null): number {
  if (bytes === null) {
    out[at] = 1;
    return at + 1;
  }
  out[at] = 0;
  return writeBytes(out, at + 1, bytes);
}
