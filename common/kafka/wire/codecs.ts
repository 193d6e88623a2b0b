import { pipeline } from 'node:stream';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { promisify } from 'node:util';
import zlib from 'node:zlib';
import { decompressFrame, decompressFrameSync } from 'lz4-napi';
import { uncompress as snappyUncompress, uncompressSync as snappyUncompressSync } from 'snappy';
import { CHUNK_BYTES, unzip, type Unpacked } from '../../unzip.ts';

/** The compressions of Kafka's record batches; `none` needs no codec. */
export type Codec = 'gzip' | 'snappy' | 'lz4' | 'zstd';

/** Decompresses the records of one record batch. */
interface Decompressor {
  /**
   * Off the event loop (thread pool) unless that would take longer. Undefined if the result might exceed maxBytes, and
   * hardly more is ever allocated: a decompression bomb is refused by its first bytes, or while it unfolds. Throws if
   * the bytes do not fit the codec, also at their end.
   */
  readonly whole: (data: Buffer, maxBytes: number) => Promise<Buffer | undefined>;
  /**
   * For a record batch that is too large to be held decompressed, or that `whole` refuses. As lenient as the readers of
   * Kafka's Java client, by which a broker checks a batch before it keeps its bytes: what stands behind the records,
   * and a checksum or size of the whole, do not matter. A batch that a broker has taken must not stop its partition.
   * Throws where the bytes do not fit the codec. An LZ4 frame with a dictionary or dependent blocks cannot be split
   * (Kafka's brokers refuse dependent blocks). A single snappy block is one piece.
   */
  readonly inChunks: (data: Buffer) => AsyncIterable<Buffer>;
}

export const decompressors: Readonly<Record<Codec, Decompressor>> = {
  gzip: {
    whole: async (data, maxBytes) => (await unzip(promisify(zlib.unzip), data, maxBytes))?.buffer,
    inChunks: gzipChunks,
  },
  snappy: { whole: decompressSnappy, inChunks: snappyChunks },
  lz4: { whole: decompressLz4, inChunks: lz4Chunks },
  zstd: { whole: decompressZstd, inChunks: zstdChunks },
};

const GZIP_MAGIC = 0x8b1f;
const GZIP_HEADER_BYTES = 10;
/** checksum and size */
const GZIP_TRAILER_BYTES = 8;
const GZIP_FLAG = { headerChecksum: 0x02, extra: 0x04, name: 0x08, comment: 0x10 } as const;

/**
 * A member up to this size is inflated at once, into memory of its size. A stream costs 0.3 ms and has a buffer of
 * CHUNK_BYTES of which a record would keep all, and 1 MiB may hold 36,000 members.
 */
const SMALL_MEMBER_BYTES = 64 * 1024;

/**
 * Inflates the members of a gzip file without their trailers, and ends at bytes that are no member. Node's Unzip fails
 * there, before it gives the last bytes of the member.
 */
async function* gzipChunks(data: Buffer): AsyncGenerator<Buffer> {
  let left = AT_ONCE_BYTES;
  for (let from = 0; ;) {
    const begin = deflateBegin(data, from);
    if (begin === undefined) return;
    const member = data.subarray(begin);
    const small = inflateSmall(member);
    if (small === undefined) {
      // leaving the loop destroys the stream
      const stream = zlib.createInflateRaw({ chunkSize: CHUNK_BYTES }).end(member);
      yield* stream as AsyncIterable<Buffer>;
      from = begin + stream.bytesWritten + GZIP_TRAILER_BYTES;
    } else {
      if ((left -= SMALL_MEMBER_BYTES) < 0) {
        await nextTurn();
        left = AT_ONCE_BYTES;
      }
      yield Buffer.from(small.buffer);
      from = begin + small.engine.bytesWritten + GZIP_TRAILER_BYTES;
    }
  }
}

/** Undefined if the member is larger than SMALL_MEMBER_BYTES, or broken. */
function inflateSmall(member: Buffer): Unpacked | undefined {
  const options = { chunkSize: 4096, maxOutputLength: SMALL_MEMBER_BYTES, info: true };
  try {
    return zlib.inflateRawSync(member, options) as unknown as Unpacked;
  } catch {
    return undefined;
  }
}

/**
 * Returns where the compressed bytes of the member at `from` begin, always behind it (RFC 1952, section 2.3). Undefined
 * if there is no member, or its header is cut off.
 */
function deflateBegin(data: Buffer, from: number): number | undefined {
  if (from + GZIP_HEADER_BYTES > data.length || data.readUInt16LE(from) !== GZIP_MAGIC) return undefined;
  const flags = data.readUInt8(from + 3);
  const has = (flag: number): boolean => (flags & flag) !== 0;
  let at = from + GZIP_HEADER_BYTES;
  if (has(GZIP_FLAG.extra)) {
    if (at + 2 > data.length) return undefined;
    at += 2 + data.readUInt16LE(at);
  }
  for (const text of [GZIP_FLAG.name, GZIP_FLAG.comment]) {
    if (!has(text)) continue;
    const end = data.indexOf(0, at);
    if (end < 0) return undefined;
    at = end + 1;
  }
  at += has(GZIP_FLAG.headerChecksum) ? 2 : 0;
  return at < data.length ? at : undefined;
}

const ZSTD_MAGIC = 0xfd2fb528;
/** 16 magics, with any last four bits */
const ZSTD_SKIPPABLE = 0x184d2a50;

/**
 * Frames may follow each other, and Node ends after the first one unless it gets them one by one. Each costs a turn
 * through the thread pool, about 0.03 ms: 1 MiB of the smallest takes 3 s, and the event loop serves others meanwhile.
 */
function zstdChunks(data: Buffer): AsyncIterable<Buffer> {
  const stream = zlib.createZstdDecompress({ chunkSize: CHUNK_BYTES });
  // whoever reads the stream gets the error
  pipeline(zstdFrames(data), stream, () => {});
  return stream;
}

/** Splits frames (RFC 8878, section 3.1) without decompressing them. Ends at bytes that are no frame. */
function* zstdFrames(data: Buffer): Generator<Buffer> {
  for (let from = 0; from + 4 <= data.length;) {
    const end = zstdFrameEnd(data, from);
    if (end === undefined) return;
    if (end > data.length) throw new Error('a frame is cut off');
    yield data.subarray(from, end);
    from = end;
  }
}

function zstdFrameEnd(data: Buffer, from: number): number | undefined {
  const magic = data.readUInt32LE(from);
  let at = from + 4;
  if ((magic & ~0x0f) === ZSTD_SKIPPABLE) return at + 4 + data.readUInt32LE(at);
  if (magic !== ZSTD_MAGIC) return undefined;
  const flags = data.readUInt8(at);
  const isSingleSegment = (flags & 0x20) !== 0;
  at += 1 + (isSingleSegment ? 0 : 1) + [0, 1, 2, 4][flags & 0x03]! + [isSingleSegment ? 1 : 0, 2, 4, 8][flags >> 6]!;
  for (let isLast = false; !isLast;) {
    const header = data.readUIntLE(at, 3);
    isLast = (header & 0x01) !== 0;
    // one byte, repeated
    const isRun = (header & 0x06) === 0x02;
    at += 3 + (isRun ? 1 : header >> 3);
  }
  const hasChecksum = (flags & 0x04) !== 0;
  return at + (hasChecksum ? 4 : 0);
}

async function decompressZstd(data: Buffer, maxBytes: number): Promise<Buffer | undefined> {
  const first = await unzip(promisify(zlib.zstdDecompress), data, maxBytes);
  if (first === undefined || first.engine.bytesWritten >= data.length) return first?.buffer;
  const parts: Buffer[] = [];
  let total = 0;
  for await (const chunk of zstdChunks(data)) {
    if ((total += chunk.length) > maxBytes) return undefined;
    // a copy: a small chunk would keep all of its buffer
    parts.push(Buffer.from(chunk));
  }
  return Buffer.concat(parts, total);
}

/**
 * LZ4 and snappy decompress 2 to 3 GB/s: up to this many bytes (1 to 2 ms) are decompressed in the event loop. A turn
 * through the thread pool costs more. The allocator of both packages (mimalloc) keeps a heap per thread, which gets
 * back late what another thread frees: it held 570 MB where the event loop's own heap holds 120 MB.
 */
const AT_ONCE_BYTES = 4 * 1024 * 1024;

/**
 * Java's snappy stream (xerial): these 8 bytes, two 32-bit versions, then blocks of up to 32 KiB, each after its 32-bit
 * length. Other clients send one block and nothing else.
 */
const XERIAL_MAGIC = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0]);
const XERIAL_HEADER_BYTES = 16;

/**
 * A copy of up to 64 bytes takes 3 bytes, so a block that claims more is damaged (github.com/google/snappy,
 * format_description.txt).
 */
const SNAPPY_MAX_RATIO = 22;

/**
 * What a block costs beside its bytes, as bytes: 3 us, and 1 MiB may hold 200,000 blocks of no bytes. So blocks are
 * decompressed in turns of AT_ONCE_BYTES.
 */
const SNAPPY_BLOCK_BYTES = 8 * 1024;

async function* snappyChunks(data: Buffer): AsyncGenerator<Buffer> {
  let left = AT_ONCE_BYTES;
  for (const block of snappyBlocks(data)) {
    const length = snappyLength(block);
    if (length > block.length * SNAPPY_MAX_RATIO) throw new Error('a block claims more bytes than it can have');
    const cost = length + SNAPPY_BLOCK_BYTES;
    if (cost > left) {
      await nextTurn();
      left = AT_ONCE_BYTES;
    }
    left -= cost;
    const unpack = cost > AT_ONCE_BYTES ? snappyUncompress : snappyUncompressSync;
    yield (await unpack(block, { asBuffer: true })) as Buffer;
  }
}

async function decompressSnappy(data: Buffer, maxBytes: number): Promise<Buffer | undefined> {
  const total = snappyBlocks(data).reduce((sum, block) => sum + snappyLength(block), 0);
  if (total > maxBytes) return undefined;
  const parts: Buffer[] = [];
  for await (const part of snappyChunks(data)) parts.push(part);
  return parts.length === 1 ? parts[0] : Buffer.concat(parts, total);
}

function snappyBlocks(data: Buffer): Buffer[] {
  const isStream = (at: number): boolean => data.subarray(at, at + XERIAL_MAGIC.length).equals(XERIAL_MAGIC);
  if (!isStream(0)) return [data];
  const blocks: Buffer[] = [];
  // Java ignores up to three bytes at the end, and skips the header of another stream
  for (let at = 0; at + 4 <= data.length;) {
    if (isStream(at)) {
      at += XERIAL_HEADER_BYTES;
      continue;
    }
    const end = at + 4 + data.readUInt32BE(at);
    if (end > data.length) throw new Error('a block is cut off');
    blocks.push(data.subarray(at + 4, end));
    at = end;
  }
  return blocks;
}

/**
 * A snappy block begins with its decompressed length as a varint of up to 32 bits (github.com/google/snappy,
 * format_description.txt).
 */
function snappyLength(block: Buffer): number {
  let length = 0;
  for (let i = 0; i < 5; i++) {
    const byte = block[i];
    if (byte === undefined) break;
    length += (byte & 0x7f) * 2 ** (7 * i);
    if (byte < 0x80) return length;
  }
  throw new Error('the length of a block is not a varint');
}

const LZ4_FRAME_MAGIC = 0x184d2204;
const LZ4_HEADER_BYTES = 7;
const LZ4_END = Buffer.alloc(4);
const LZ4_FLAG = {
  dictionary: 0x01,
  contentChecksum: 0x04,
  contentSize: 0x08,
  blockChecksum: 0x10,
  independent: 0x20,
} as const;
/** A byte of a block stands for at most so many (lz4_Block_format.md): one more of them is 255 more of a match. */
const LZ4_MAX_RATIO = 255;

/**
 * Splits an LZ4 frame (github.com/lz4/lz4, lz4_Frame_format.md) without decompressing it. Ignores what follows it, as
 * Java does.
 */
function lz4Frame(data: Buffer) {
  if (data.length < LZ4_HEADER_BYTES || data.readUInt32LE(0) !== LZ4_FRAME_MAGIC) throw new Error('not an LZ4 frame');
  const flags = data.readUInt8(4);
  const has = (flag: number, bytes: number): number => ((flags & flag) === 0 ? 0 : bytes);
  const maxBlockBytes = 2 ** (8 + 2 * ((data.readUInt8(5) >> 4) & 0x07));
  let at = LZ4_HEADER_BYTES + has(LZ4_FLAG.contentSize, 8) + has(LZ4_FLAG.dictionary, 4);
  /** where groups of blocks begin: a group has at most CHUNK_BYTES decompressed, or is one block */
  const groups = [at];
  let groupBytes = 0;
  /** how much all blocks may have decompressed */
  let mostBytes = 0;
  for (;;) {
    if (at + 4 > data.length) throw new Error('the frame is cut off');
    const blockBytes = data.readUInt32LE(at) & 0x7fffffff;
    if (blockBytes === 0) break;
    const most = Math.min(maxBlockBytes, blockBytes * LZ4_MAX_RATIO);
    if (groupBytes > 0 && groupBytes + most > CHUNK_BYTES) {
      groups.push(at);
      groupBytes = 0;
    }
    groupBytes += most;
    mostBytes += most;
    at += 4 + blockBytes + has(LZ4_FLAG.blockChecksum, 4);
    if (at > data.length) throw new Error('a block is cut off');
  }
  return { flags, groups, end: at, mostBytes };
}

/** decompressFrame has no limit, so the largest size that the blocks may have decides. */
async function decompressLz4(data: Buffer, maxBytes: number): Promise<Buffer | undefined> {
  const { mostBytes } = lz4Frame(data);
  if (mostBytes > maxBytes) return undefined;
  return mostBytes <= AT_ONCE_BYTES ? decompressFrameSync(data) : await decompressFrame(data);
}

/**
 * Independent blocks: a few of them, after the frame's own header, are a frame again. It lacks the size and the
 * checksum of the whole, which the record batch does not need: it has a checksum of its own.
 */
async function* lz4Chunks(data: Buffer): AsyncGenerator<Buffer> {
  const { flags, groups, end } = lz4Frame(data);
  if ((flags & LZ4_FLAG.independent) === 0 || (flags & LZ4_FLAG.dictionary) !== 0)
    throw new Error('a frame of this size with linked blocks or a dictionary cannot be split');
  const header = Buffer.from(data.subarray(0, LZ4_HEADER_BYTES));
  header[4] = flags & ~(LZ4_FLAG.contentSize | LZ4_FLAG.contentChecksum);
  header[6] = lz4HeaderChecksum(header.subarray(4, 6));
  for (const [i, from] of groups.entries()) {
    await nextTurn();
    // a block has at most AT_ONCE_BYTES
    yield decompressFrameSync(Buffer.concat([header, data.subarray(from, groups[i + 1] ?? end), LZ4_END]));
  }
}

/** Returns the second byte of the xxHash-32 of fewer than four bytes (github.com/Cyan4973/xxHash, xxhash_spec.md). */
function lz4HeaderChecksum(bytes: Buffer): number {
  let hash = 0x1656_67b1 + bytes.length;
  for (const byte of bytes) {
    hash += Math.imul(byte, 0x1656_67b1);
    hash = Math.imul((hash << 11) | (hash >>> 21), 0x9e37_79b1);
  }
  hash = Math.imul(hash ^ (hash >>> 15), 0x85eb_ca77);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2_ae3d);
  return ((hash ^ (hash >>> 16)) >>> 8) & 0xff;
}
