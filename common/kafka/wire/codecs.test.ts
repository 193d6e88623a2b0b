import zlib from 'node:zlib';
import { compressSync as snappyBlock } from 'snappy';
import kafkajs from 'kafkajs';
import { compressFrameSync } from 'lz4-napi';
import { describe, expect, test } from 'vitest';
import { compress, decompress, decompressInChunks, installCodecs, type Codec } from './codecs.ts';

const { CompressionCodecs, CompressionTypes } = kafkajs;
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

function xerial(...blocks: Buffer[]): Buffer {
  const header = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0, 0, 0, 0, 1, 0, 0, 0, 1]);
  return Buffer.concat([
    header,
    ...blocks.flatMap((b) => {
      const length = Buffer.alloc(4);
      length.writeUInt32BE(b.length);
      return [length, b];
    }),
  ]);
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
  expect((await decompress('zstd', packed, data.length))!.equals(data)).toBe(true);
  expect(await refusal(decompress('zstd', packed, data.length - 1))).toBe('too_large');
  const chunks: Buffer[] = [];
  for await (const chunk of decompressInChunks('zstd', packed)) chunks.push(chunk);
  expect(Buffer.concat(chunks).equals(data)).toBe(true);
  expect(chunks.length).toBeGreaterThan(4);
});

test('zstd frames of every form are told apart', async () => {
  const { ZSTD_c_checksumFlag: checksum, ZSTD_c_contentSizeFlag: size } = zlib.constants;
  const skippable = Buffer.from([0x5f, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 0x28, 0xb5, 0x2f]);
  const parts = [0, 1, 300, 70_000, MiB].flatMap((bytes) => [sample(bytes), Buffer.alloc(bytes)]);
  for (const params of [{}, { [checksum]: 1 }, { [size]: 0 }, { [checksum]: 1, [size]: 0 }]) {
    const frames = parts.flatMap((part) => [zlib.zstdCompressSync(part, { params }), skippable]);
    const read = await decompress('zstd', Buffer.concat(frames), 4 * MiB);
    expect(read!.equals(Buffer.concat(parts))).toBe(true);
    const cut = Buffer.concat(frames).subarray(0, -skippable.length - 1);
    expect(await refusal(decompress('zstd', cut, 4 * MiB))).toBe('corrupt');
  }
});

test('ever so many zstd frames are read, and the event loop goes on meanwhile', async () => {
  const frame = zlib.zstdCompressSync('x');
  let turns = 0;
  const turning = setInterval(() => turns++, 5);
  // with a stream for each it took 6 s and 110 MB
  const data = await decompress('zstd', Buffer.concat(Array.from({ length: 20_000 }, () => frame)), 20_000);
  clearInterval(turning);
  expect(data!.equals(Buffer.alloc(20_000, 'x'))).toBe(true);
  expect(turns).toBeGreaterThan(10);
});

describe.each(codecs)('%s', (codec) => {
  test.each([0, 1, 100, 65_536, 3 * MiB + 17])('gives back %i bytes', async (bytes) => {
    const data = sample(bytes);
    expect((await decompress(codec, await compress(codec, data), Math.max(bytes, 1)))!.equals(data)).toBe(true);
  });

  test('accepts exactly the limit and refuses one byte more', async () => {
    const data = sample(200_000);
    const packed = await compress(codec, data);
    expect((await decompress(codec, packed, 200_000))!.length).toBe(200_000);
    expect(await refusal(decompress(codec, packed, 199_999))).toBe('too_large');
  });

  test('refuses a bomb without decompressing it', async () => {
    const bomb = await compress(codec, Buffer.alloc(128 * MiB));
    const before = process.memoryUsage().rss;
    expect(await refusal(decompress(codec, bomb, 4 * MiB))).toBe('too_large');
    expect(process.memoryUsage().rss - before).toBeLessThan(48 * MiB);
  });

  test('reports damaged, cut and foreign bytes as corrupt', async () => {
    const packed = await compress(codec, sample(100_000));
    for (const bytes of [
      packed.subarray(0, packed.length - 10),
      Buffer.from('no such thing'),
      Buffer.alloc(0),
      Buffer.alloc(100, 0xff),
    ]) {
      expect(await refusal(decompress(codec, bytes, MiB))).toBe('corrupt');
    }
  });
});

describe('snappy of Java (xerial blocks)', () => {
  test('joins blocks', async () => {
    const parts = [sample(32_768), sample(32_768), sample(5)];
    const packed = xerial(...parts.map((p) => snappyBlock(p)));
    expect((await decompress('snappy', packed, MiB))!.equals(Buffer.concat(parts))).toBe(true);
  });

  test('is empty if there are no blocks', async () => {
    expect((await decompress('snappy', xerial(), MiB))!.length).toBe(0);
  });

  test('limits the sum of the blocks before it decompresses one', async () => {
    const packed = xerial(...Array.from({ length: 20 }, () => snappyBlock(Buffer.alloc(60_000))));
    expect(await refusal(decompress('snappy', packed, 1_199_999))).toBe('too_large');
    expect((await decompress('snappy', packed, 1_200_000))!.length).toBe(1_200_000);
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
      const data = await decompress('snappy', packed, MiB);
      isOver = true;
      expect(data!.toString()).toBe(part.repeat(20_000));
      expect(turns).toBeGreaterThan(5);
    }
  });

  test('refuses a block that claims more than it has', async () => {
    const block = snappyBlock(sample(1000));
    expect(await refusal(decompress('snappy', xerial(block).subarray(0, 40), MiB))).toBe('corrupt');
    expect(await refusal(decompress('snappy', Buffer.concat([xerial(block), Buffer.from([0, 0])]), MiB))).toBe(
      'corrupt',
    );
    // claims 4 GiB - 1 in its varint: refused by its claim alone
    expect(await refusal(decompress('snappy', Buffer.from([0xff, 0xff, 0xff, 0xff, 0x0f, 0]), MiB))).toBe('too_large');
  });
});

test('a record batch that kafkajs reads itself is refused above the limit', async () => {
  installCodecs(10);
  const codec = CompressionCodecs[CompressionTypes.GZIP]() as unknown as {
    decompress(data: Buffer): Promise<Buffer>;
  };
  expect(await codec.decompress(zlib.gzipSync(sample(10)))).toHaveLength(10);
  await expect(codec.decompress(zlib.gzipSync(sample(11)))).rejects.toThrow('more than 10 bytes');
});

describe('lz4 frames', () => {
  test('decompresses frames with checksums', async () => {
    const data = sample(300_000);
    const packed = compressFrameSync(data, { contentChecksum: true, blockChecksums: true });
    expect((await decompress('lz4', packed, 300_000))!.equals(data)).toBe(true);
    expect(await refusal(decompress('lz4', packed, 299_999))).toBe('too_large');
  });

  test('refuses several frames in a row, because only the first would be read', async () => {
    const packed = Buffer.concat([compressFrameSync(sample(1000)), compressFrameSync(sample(70_000))]);
    expect(await refusal(decompress('lz4', packed, 71_000))).toBe('corrupt');
  });

  test('counts incompressible blocks by their size', async () => {
    const data = zlib.gzipSync(sample(400_000));
    const packed = compressFrameSync(data);
    expect((await decompress('lz4', packed, data.length))!.equals(data)).toBe(true);
    expect(await refusal(decompress('lz4', packed, data.length - 1))).toBe('too_large');
  });
});
