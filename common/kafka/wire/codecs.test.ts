import zlib from 'node:zlib';
import { compressSync as snappyBlock } from 'snappy';
import { compressFrameSync } from 'lz4-napi';
import { describe, expect, test } from 'vitest';
import { compress, xerial } from '../../../test/harness/codecs.ts';
import { decompressors, type Codec } from './codecs.ts';

const codecs: Codec[] = ['gzip', 'snappy', 'lz4', 'zstd'];
const MiB = 1024 * 1024;

/** Repeatable bytes that compress somewhat: words drawn by a linear congruential generator. */
function sample(bytes: number): Buffer {
  const result = Buffer.alloc(bytes);
  let x = 12345;
  for (let i = 0; i < bytes; i++) {
    if (i % 7 === 0) x = (x * 1103515245 + 12345) % 2147483648;
    result[i] = 32 + ((x >> 16) % 64);
  }
  return result;
}

async function refusal(promise: Promise<Buffer | undefined>): Promise<string | undefined> {
  return await promise.then(
    (whole) => (whole === undefined ? 'too_large' : undefined),
    () => 'corrupt',
  );
}

test('zstd frames that follow each other are read to the last one, within the limit', async () => {
  const parts = [sample(1_000), sample(3 * MiB), Buffer.alloc(0), sample(17)];
  const packed = Buffer.concat(parts.map((part) => zlib.zstdCompressSync(part)));
  const data = Buffer.concat(parts);
  expect((await decompressors.zstd.whole(packed, data.length))!.equals(data)).toBe(true);
  expect(await refusal(decompressors.zstd.whole(packed, data.length - 1))).toBe('too_large');
  const chunks: Buffer[] = [];
  for await (const chunk of decompressors.zstd.inChunks(packed)) chunks.push(chunk);
  expect(Buffer.concat(chunks).equals(data)).toBe(true);
  expect(chunks.length).toBeGreaterThan(4);
});

test('zstd frames of every form are told apart', async () => {
  const { ZSTD_c_checksumFlag: checksum, ZSTD_c_contentSizeFlag: size } = zlib.constants;
  const skippable = Buffer.from([0x5f, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 0x28, 0xb5, 0x2f]);
  const parts = [0, 1, 300, 70_000, MiB].flatMap((bytes) => [sample(bytes), Buffer.alloc(bytes)]);
  for (const params of [{}, { [checksum]: 1 }, { [size]: 0 }, { [checksum]: 1, [size]: 0 }]) {
    const frames = parts.flatMap((part) => [zlib.zstdCompressSync(part, { params }), skippable]);
    const read = await decompressors.zstd.whole(Buffer.concat(frames), 4 * MiB);
    expect(read!.equals(Buffer.concat(parts))).toBe(true);
    const cut = Buffer.concat(frames).subarray(0, -skippable.length - 1);
    expect(await refusal(decompressors.zstd.whole(cut, 4 * MiB))).toBe('corrupt');
  }
});

test('ever so many zstd frames are read, and the event loop goes on meanwhile', async () => {
  const frame = zlib.zstdCompressSync('x');
  let turns = 0;
  const turning = setInterval(() => turns++, 5);
  // with a stream for each it took 6 s and 110 MB
  const data = await decompressors.zstd.whole(Buffer.concat(Array.from({ length: 20_000 }, () => frame)), 20_000);
  clearInterval(turning);
  expect(data!.equals(Buffer.alloc(20_000, 'x'))).toBe(true);
  expect(turns).toBeGreaterThan(10);
});

describe.each(codecs)('%s', (codec) => {
  test.each([0, 1, 100, 65_536, 3 * MiB + 17])('gives back %i bytes', async (bytes) => {
    const data = sample(bytes);
    expect((await decompressors[codec].whole(await compress[codec](data), 4 * MiB))!.equals(data)).toBe(true);
  });

  test('accepts exactly the limit and refuses one byte more', async () => {
    // a whole block of LZ4, which refuses by its largest possible size
    const bytes = 65_536;
    const packed = await compress[codec](sample(bytes));
    expect((await decompressors[codec].whole(packed, bytes))!.length).toBe(bytes);
    expect(await refusal(decompressors[codec].whole(packed, bytes - 1))).toBe('too_large');
  });

  test('refuses a bomb without decompressing it', async () => {
    const bomb = await compress[codec](Buffer.alloc(128 * MiB));
    const before = process.memoryUsage().rss;
    expect(await refusal(decompressors[codec].whole(bomb, 4 * MiB))).toBe('too_large');
    expect(process.memoryUsage().rss - before).toBeLessThan(48 * MiB);
  });

  test('reports damaged, cut and foreign bytes as corrupt', async () => {
    const packed = await compress[codec](sample(100_000));
    for (const bytes of [
      packed.subarray(0, packed.length - 10),
      Buffer.from('no such thing'),
      Buffer.alloc(0),
      Buffer.alloc(100, 0xff),
    ]) {
      expect(await refusal(decompressors[codec].whole(bytes, MiB))).toBe('corrupt');
    }
  });
});

describe('snappy of Java (xerial blocks)', () => {
  test('joins blocks', async () => {
    const parts = [sample(32_768), sample(32_768), sample(5)];
    const packed = xerial(...parts.map((p) => snappyBlock(p)));
    expect((await decompressors.snappy.whole(packed, MiB))!.equals(Buffer.concat(parts))).toBe(true);
  });

  test('is empty if there are no blocks', async () => {
    expect((await decompressors.snappy.whole(xerial(), MiB))!.length).toBe(0);
  });

  test('limits the sum of the blocks before it decompresses one', async () => {
    const packed = xerial(...Array.from({ length: 20 }, () => snappyBlock(Buffer.alloc(60_000))));
    expect(await refusal(decompressors.snappy.whole(packed, 1_199_999))).toBe('too_large');
    expect((await decompressors.snappy.whole(packed, 1_200_000))!.length).toBe(1_200_000);
  });

  test('ever so many small blocks are read, and the event loop goes on meanwhile', async () => {
    for (const part of ['', 'x']) {
      const packed = xerial(...Array.from({ length: 20_000 }, () => snappyBlock(part)));
      let turns = 0;
      let isOver = false;
      const count = (): void => {
        turns++;
        if (!isOver) setImmediate(count);
      };
      count();
      const data = await decompressors.snappy.whole(packed, MiB);
      isOver = true;
      expect(data!.toString()).toBe(part.repeat(20_000));
      expect(turns).toBeGreaterThan(5);
    }
  });

  test('refuses a block that claims more than it has', async () => {
    const block = snappyBlock(sample(1000));
    expect(await refusal(decompressors.snappy.whole(xerial(block).subarray(0, 40), MiB))).toBe('corrupt');
    // claims 4 GiB - 1 in its varint: refused by its claim alone
    expect(await refusal(decompressors.snappy.whole(Buffer.from([0xff, 0xff, 0xff, 0xff, 0x0f, 0]), MiB))).toBe(
      'too_large',
    );
  });
});

describe('lz4 frames', () => {
  test('decompresses frames with checksums', async () => {
    const data = sample(300_000);
    const packed = compressFrameSync(data, { contentChecksum: true, blockChecksums: true });
    expect((await decompressors.lz4.whole(packed, 4 * MiB))!.equals(data)).toBe(true);
  });

  test('are split into chunks of a few blocks, or of very many tiny ones', async () => {
    const tiny = Buffer.from([1, 0, 0, 0x80, 0x78]);
    const empty = compressFrameSync(Buffer.alloc(0));
    const ofTiny = Buffer.concat([
      empty.subarray(0, 7),
      ...Array.from({ length: 100_000 }, () => tiny),
      Buffer.alloc(4),
    ]);
    for (const [packed, data, most] of [
      [compressFrameSync(Buffer.alloc(9 * MiB)), Buffer.alloc(9 * MiB), 3],
      [compressFrameSync(zlib.gzipSync(sample(MiB))), zlib.gzipSync(sample(MiB)), 1],
      [ofTiny, Buffer.alloc(100_000, 'x'), 110],
    ] as const) {
      const chunks: Buffer[] = [];
      for await (const chunk of decompressors.lz4.inChunks(packed)) chunks.push(chunk);
      expect(Buffer.concat(chunks).equals(data)).toBe(true);
      expect(chunks.length).toBeGreaterThan(most * 0.8);
      expect(chunks.length).toBeLessThanOrEqual(most);
    }
  });
});
