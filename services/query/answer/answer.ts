import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import type { OtherFormat } from '../render/formats.ts';

/** A result as callers get it. */
export interface Answer {
  /** a Buffer if it was made in a thread (renderer.ts); one from Redis is a string, whatever its size */
  readonly body: string | Buffer;
  /** of the body in UTF-8 */
  readonly bytes: number;
  /** weak, of the uncompressed body */
  readonly etag: string;
  readonly truncated: boolean;
  /** the instant the answer is true for, unix milliseconds */
  readonly fetchedAt: number;
  /** compressed copies and other forms, made on demand */
  readonly copies: Map<Encoding, Promise<Buffer>>;
  readonly forms: Map<OtherFormat, Promise<Answer>>;
}
/** none: the endpoint caches nothing; stale: the query failed with `unavailable`, so an expired answer is served */
export type CacheResult = 'hit' | 'miss' | 'stale' | 'none';
export type Encoding = 'br' | 'gzip';

/** Returns an answer made of a body. All answers are made here. */
export function answerOf(made: Pick<Answer, 'body' | 'truncated' | 'fetchedAt' | 'etag'>): Answer {
  return { ...made, bytes: Buffer.byteLength(made.body), copies: new Map(), forms: new Map() };
}

export const compressors: Record<Encoding, (body: string | Buffer) => Promise<Buffer>> = {
  // quality 11, the default, takes a second for a megabyte
  br: (body) => promisify(brotliCompress)(body, { params: { [constants.BROTLI_PARAM_QUALITY]: 4 } }),
  gzip: (body) => promisify(gzip)(body),
};
