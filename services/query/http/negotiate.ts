import type { Encoding } from '../answer/answer.ts';

/** Shorter bodies are sent as they are. */
export const COMPRESS_FROM_BYTES = 1024;

/** Returns the accepted encoding that we prefer, by RFC 9110 section 12.5.3. Undefined for no encoding. */
export function preferredEncoding(header: string | string[] | undefined): Encoding | undefined {
  if (header === undefined) return undefined;
  const weights = new Map<string, number>();
  for (const part of String(header).split(',')) {
    const [name, ...parameters] = part.trim().toLowerCase().split(';');
    const q = parameters.map((p) => /^\s*q=([0-9.]+)\s*$/.exec(p)?.[1]).find((v) => v !== undefined);
    if (name !== undefined && name !== '') weights.set(name.trim(), q === undefined ? 1 : Number(q));
  }
  const weight = (encoding: string): number => weights.get(encoding) ?? weights.get('*') ?? 0;
  const [brotli, gzip] = [weight('br'), Math.max(weight('gzip'), weights.get('x-gzip') ?? 0)];
  if (brotli > 0 && brotli >= gzip) return 'br';
  return gzip > 0 ? 'gzip' : undefined;
}

/** Returns false if If-None-Match has the tag (weak comparison, RFC 9110 section 13.1.2) or is `*`. */
export function isModified(ifNoneMatch: string | undefined, etag: string): boolean {
  if (ifNoneMatch === undefined) return true;
  const opaque = etag.replace(/^W\//, '');
  return !ifNoneMatch.split(',').some((tag) => tag.trim() === '*' || tag.trim().replace(/^W\//, '') === opaque);
}
