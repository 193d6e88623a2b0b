import { promisify } from 'node:util';
import zlib from 'node:zlib';
import kafkajs from 'kafkajs';
import { compressFrame } from 'lz4-napi';
import { compress as snappy } from 'snappy';
import type { Codec } from '../../common/kafka/wire/codecs.ts';

/** Compresses the records of a record batch, as producers do. */
export const compress: Readonly<Record<Codec, (data: Buffer) => Promise<Buffer>>> = {
  gzip: promisify<Buffer, Buffer>(zlib.gzip),
  snappy: (data) => snappy(data),
  lz4: (data) => compressFrame(data),
  zstd: promisify<Buffer, Buffer>(zlib.zstdCompress),
};

/** Lets kafkajs produce with the codecs that it does not have, and that the product only reads. */
export function installCodecs(): void {
  const { CompressionCodecs, CompressionTypes } = kafkajs;
  const of = (codec: Codec) => () => ({
    compress: ({ buffer }: { readonly buffer: Buffer }) => compress[codec](buffer),
  });
  CompressionCodecs[CompressionTypes.Snappy] = of('snappy');
  CompressionCodecs[CompressionTypes.ZSTD] = of('zstd');
}
