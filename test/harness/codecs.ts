import { promisify } from 'node:util';
import zlib, { gzipSync } from 'node:zlib';
import kafkajs from 'kafkajs';
import { compressFrame, compressFrameSync } from 'lz4-napi';
import { compress as snappy, compressSync as snappySync } from 'snappy';
import type { Codec } from '../../common/kafka/wire/codecs.ts';

/** Compresses the records of a record batch, as producers do. */
export const compress: Readonly<Record<Codec, (data: Buffer) => Promise<Buffer>>> = {
  gzip: promisify<Buffer, Buffer>(zlib.gzip),
  snappy: (data) => snappy(data),
  lz4: (data) => compressFrame(data),
  zstd: promisify<Buffer, Buffer>(zlib.zstdCompress),
};

/** What Java's producer makes of a record batch: a header, then blocks after their lengths. */
export function xerial(...blocks: readonly Buffer[]): Buffer {
  const header = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0, 0, 0, 0, 1, 0, 0, 0, 1]);
  return Buffer.concat([header, ...blocks.flatMap((block) => [lengthOf(block), block])]);
}

function lengthOf(block: Buffer): Buffer {
  const length = Buffer.alloc(4);
  length.writeUInt32BE(block.length);
  return length;
}

/**
 * Compressed records that are not as their format says, and that Kafka's broker (4.1) stores as they are, because its
 * readers take no notice of what is wrong.
 */
export const oddlyCompressed: readonly (readonly [what: string, Codec, (body: Buffer) => Buffer])[] = [
  ['gzip, then one byte', 'gzip', (body) => Buffer.concat([gzipSync(body), Buffer.from('x')])],
  ['gzip, then text', 'gzip', (body) => Buffer.concat([gzipSync(body), Buffer.from('much longer than a trailer is')])],
  [
    'gzip, then the magic of no member',
    'gzip',
    (body) => Buffer.concat([gzipSync(body), GZIP_MAGIC, Buffer.alloc(30, 7)]),
  ],
  [
    'two gzip members, then text',
    'gzip',
    (body) =>
      Buffer.concat([
        ...halves(body).map((half) => withFields(gzipSync(half))),
        Buffer.from('much longer than a trailer is'),
      ]),
  ],
  ['lz4, then text', 'lz4', (body) => Buffer.concat([compressFrameSync(body), Buffer.from('xyz')])],
  ['lz4, then another frame', 'lz4', (body) => Buffer.concat([compressFrameSync(body), compressFrameSync(body)])],
  [
    'lz4 with a wrong checksum of the whole',
    'lz4',
    (body) => spoiled(compressFrameSync(body, { contentChecksum: true })),
  ],
  [
    'lz4 with another end mark',
    'lz4',
    (body) => Buffer.concat([compressFrameSync(body).subarray(0, -4), Buffer.from([0, 0, 0, 0x80])]),
  ],
  ['snappy, then three bytes', 'snappy', (body) => Buffer.concat([xerial(snappySync(body)), Buffer.from('abc')])],
  [
    'snappy streams that follow each other',
    'snappy',
    (body) => Buffer.concat(halves(body).map((half) => xerial(snappySync(half)))),
  ],
];

const GZIP_MAGIC = Buffer.from([0x1f, 0x8b]);
const halves = (body: Buffer): Buffer[] => [body.subarray(0, body.length >> 1), body.subarray(body.length >> 1)];

/** Adds every optional field to the header of a gzip member (RFC 1952, section 2.3). */
function withFields(member: Buffer): Buffer {
  const header = Buffer.from(member.subarray(0, 10));
  header[3] = 0x02 | 0x04 | 0x08 | 0x10;
  const fields = Buffer.from([3, 0, 1, 2, 3, ...Buffer.from('name\0comment\0')]);
  const checksum = Buffer.alloc(2);
  checksum.writeUInt16LE(zlib.crc32(Buffer.concat([header, fields])) & 0xffff);
  return Buffer.concat([header, fields, checksum, member.subarray(10)]);
}

function spoiled(frame: Buffer): Buffer {
  frame[frame.length - 1]! ^= 1;
  return frame;
}

/** Lets kafkajs produce with the codecs that it does not have, and that the product only reads. */
export function installCodecs(): void {
  const { CompressionCodecs, CompressionTypes } = kafkajs;
  const of = (codec: Codec) => () => ({
    compress: ({ buffer }: { readonly buffer: Buffer }) => compress[codec](buffer),
  });
  CompressionCodecs[CompressionTypes.Snappy] = of('snappy');
  CompressionCodecs[CompressionTypes.ZSTD] = of('zstd');
}

/** Lets kafkajs compress with `pack` while `produce` runs. */
export async function withCodec(
  codec: Codec,
  pack: (body: Buffer) => Buffer,
  produce: () => Promise<unknown>,
): Promise<void> {
  const { CompressionCodecs } = kafkajs;
  const type = ({ gzip: 1, snappy: 2, lz4: 3, zstd: 4 } as const)[codec];
  const before = CompressionCodecs[type];
  CompressionCodecs[type] = () => ({
    compress: ({ buffer }: { readonly buffer: Buffer }) => Promise.resolve(pack(buffer)),
  });
  try {
    await produce();
  } finally {
    CompressionCodecs[type] = before;
  }
}
