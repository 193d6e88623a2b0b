import { promisify } from 'node:util';
import zlib from 'node:zlib';
import kafkajs from 'kafkajs';
import { compressFrame, decompressFrame } from 'lz4-napi';
import { compress as snappyCompress, uncompress as snappyUncompress } from 'snappy';

/** The compressed record batches of Kafka; `none` needs no codec. */
export type Codec = 'gzip' | 'snappy' | 'lz4' | 'zstd';

/** A record batch that is not decompressed: its bytes are not what the codec's name says, or there would be too many. */
export class CodecError extends Error {
  readonly reason: 'corrupt' | 'too_large';
  constructor(codec: Codec, reason: CodecError['reason'], message: string, options?: { cause?: unknown }) {
    super(`a record batch compressed with ${codec} ${message}`, options);
    this.name = 'CodecError';
    this.reason = reason;
  }
}

function tooLarge(codec: Codec, compressedBytes: number, maxBytes: number): CodecError {
  return new CodecError(codec, 'too_large', `and ${compressedBytes} bytes long has more than ${maxBytes} bytes when decompressed`);
}

function corrupt(codec: Codec, cause: unknown): CodecError {
  return new CodecError(codec, 'corrupt', `cannot be decompressed: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
}

/**
 * Decompresses the records of one record batch off the event loop (thread pool).
 * The result is never larger than maxBytes, and not much more than that is ever allocated: a few bytes of a decompression bomb say so before, or while, they unfold.
 * Throws CodecError.
 */
export async function decompress(codec: Codec, data: Buffer, maxBytes: number): Promise<Buffer> {
  try {
    return await decompressors[codec](data, maxBytes);
  } catch (error) {
    throw error instanceof CodecError ? error : corrupt(codec, error);
  }
}

/** Compresses the records of one record batch off the event loop. */
export function compress(codec: Codec, data: Buffer): Promise<Buffer> {
  return compressors[codec](data);
}

const gzip = promisify<Buffer, Buffer>(zlib.gzip);
const zstdCompress = promisify<Buffer, Buffer>(zlib.zstdCompress);

const compressors: Record<Codec, (data: Buffer) => Promise<Buffer>> = {
  gzip,
  snappy: (data) => snappyCompress(data),
  lz4: (data) => compressFrame(data),
  zstd: zstdCompress,
};

const decompressors: Record<Codec, (data: Buffer, maxBytes: number) => Promise<Buffer>> = {
  gzip: (data, maxBytes) => unzip('gzip', promisify(zlib.unzip), data, maxBytes),
  snappy: decompressSnappy,
  lz4: decompressLz4,
  zstd: (data, maxBytes) => unzip('zstd', promisify(zlib.zstdDecompress), data, maxBytes),
};

/** zlib's default of 16 KiB costs a turn through the thread pool per 16 KiB of output. */
const CHUNK_BYTES = 256 * 1024;

async function unzip(codec: Codec, unpack: (data: Buffer, options: { maxOutputLength: number; chunkSize: number }) => Promise<Buffer>, data: Buffer, maxBytes: number): Promise<Buffer> {
  try {
    return await unpack(data, { maxOutputLength: maxBytes, chunkSize: CHUNK_BYTES });
  } catch (error) {
    throw (error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE' ? tooLarge(codec, data.length, maxBytes) : error;
  }
}

/** Java's snappy stream (xerial): these 8 bytes, two 32-bit versions, then blocks of up to 32 KiB, each behind its 32-bit length. Others send one block and nothing else. */
const XERIAL_MAGIC = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0]);
const XERIAL_HEADER_BYTES = 16;

async function decompressSnappy(data: Buffer, maxBytes: number): Promise<Buffer> {
  const blocks = data.subarray(0, XERIAL_MAGIC.length).equals(XERIAL_MAGIC) ? xerialBlocks(data) : [data];
  const total = blocks.reduce((sum, block) => sum + snappyLength(block), 0);
  if (total > maxBytes) throw tooLarge('snappy', data.length, maxBytes);
  const parts = await Promise.all(blocks.map((block) => snappyUncompress(block, { asBuffer: true }) as Promise<Buffer>));
  return parts.length === 1 && parts[0] !== undefined ? parts[0] : Buffer.concat(parts, total);
}

function xerialBlocks(data: Buffer): Buffer[] {
  const blocks: Buffer[] = [];
  for (let at = XERIAL_HEADER_BYTES; at < data.length;) {
    if (at + 4 > data.length) throw new Error('a block length is cut off');
    const end = at + 4 + data.readUInt32BE(at);
    if (end > data.length) throw new Error('a block is cut off');
    blocks.push(data.subarray(at + 4, end));
    at = end;
  }
  return blocks;
}

/** A snappy block begins with its decompressed length as a varint of up to 32 bits (github.com/google/snappy, format_description.txt). */
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

async function decompressLz4(data: Buffer, maxBytes: number): Promise<Buffer> {
  if (data.length < 4 || data.readUInt32LE(0) !== LZ4_FRAME_MAGIC) throw new Error('not an LZ4 frame'); // decompressFrame takes no bytes at all for an empty frame
  const expected = lz4FrameBytes(data, maxBytes);
  if (expected > maxBytes) throw tooLarge('lz4', data.length, maxBytes);
  const result = await decompressFrame(data); // silently stops behind the first frame
  if (result.length !== expected) throw new Error(`${result.length} bytes instead of ${expected}`);
  return result;
}

const LZ4_FRAME_MAGIC = 0x184d2204;

/**
 * Decompressed size of LZ4 frames (github.com/lz4/lz4, lz4_Frame_format.md and lz4_Block_format.md), counted without decompressing because
 * decompressFrame has no limit: a block that is stored counts as it is, a compressed one as the sum of its literals and matches.
 * Stops counting above maxBytes. A frame that is cut off or not one counts as far as it can be read: decompressFrame then says what is wrong.
 */
function lz4FrameBytes(data: Buffer, maxBytes: number): number {
  let total = 0;
  let at = 0;
  while (at + 7 <= data.length && data.readUInt32LE(at) === LZ4_FRAME_MAGIC) {
    const flags = data[at + 4] ?? 0;
    const blockChecksum = (flags & 0x10) !== 0 ? 4 : 0;
    const contentSize = (flags & 0x08) !== 0 ? 8 : 0;
    const contentChecksum = (flags & 0x04) !== 0 ? 4 : 0;
    const dictionary = (flags & 0x01) !== 0 ? 4 : 0;
    at += 7 + contentSize + dictionary;
    for (;;) {
      if (at + 4 > data.length) return total;
      const word = data.readUInt32LE(at);
      at += 4;
      if (word === 0) break;
      const size = word & 0x7fffffff;
      const stored = word > 0x7fffffff;
      total += stored ? size : lz4BlockBytes(data, at, Math.min(at + size, data.length));
      if (total > maxBytes) return total;
      at += size + blockChecksum;
    }
    at += contentChecksum;
  }
  return total;
}

function lz4BlockBytes(data: Buffer, from: number, end: number): number {
  let total = 0;
  for (let at = from; at < end;) {
    const token = data[at++] ?? 0;
    let literals = token >> 4;
    if (literals === 15) {
      let more: number;
      do { more = data[at++] ?? 0; literals += more; } while (more === 255);
    }
    at += literals + 2;
    total += literals;
    if (at > end) break;
    let match = token & 0x0f;
    if (match === 15) {
      let more: number;
      do { more = data[at++] ?? 0; match += more; } while (more === 255);
    }
    total += match + 4;
  }
  return total;
}

/** Gives kafkajs these codecs; its own gzip has no limit and it has no others. One limit per process: kafkajs holds them in a global. */
export function installCodecs(maxBytes: number): void {
  const { CompressionCodecs, CompressionTypes } = kafkajs;
  const bounded = (codec: Codec) => () => ({
    compress: (encoder: { readonly buffer: Buffer }) => compress(codec, encoder.buffer),
    decompress: (data: Buffer) => decompress(codec, data, maxBytes),
  });
  CompressionCodecs[CompressionTypes.GZIP] = bounded('gzip');
  CompressionCodecs[CompressionTypes.Snappy] = bounded('snappy');
  CompressionCodecs[CompressionTypes.LZ4] = bounded('lz4');
  CompressionCodecs[CompressionTypes.ZSTD] = bounded('zstd');
}
