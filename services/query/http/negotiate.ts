import type { FastifyReply, FastifyRequest } from 'fastify';
import { compressors, type Encoding } from '../answer/answer.ts';
import type { Definition } from '../definition/definition.ts';
import { hasCsv, MEDIA_TYPES, type OtherFormat } from '../render/formats.ts';

/** Bodies up to this size are sent as they are. */
const COMPRESS_FROM_BYTES = 1024;

const JSON_TYPES = ['application/json', 'application/*', '*/*'];

/** Returns the weights of an Accept or Accept-Encoding header by name in lower case, by RFC 9110 section 12.4.2. */
function weightsOf(header: string): Map<string, number> {
  return new Map(
    header
      .toLowerCase()
      .split(',')
      .map((part) => {
        const [name = '', ...parameters] = part.split(';').map((text) => text.trim());
        const q = parameters.map((p) => /^q=([0-9.]+)$/.exec(p)?.[1]).find((v) => v !== undefined);
        return [name, q === undefined ? 1 : Number(q)];
      }),
  );
}

/** Returns the accepted encoding that we prefer, by RFC 9110 section 12.5.3. Undefined for no encoding. */
export function preferredEncoding(header: string | string[] | undefined): Encoding | undefined {
  if (header === undefined) return undefined;
  const weights = weightsOf(String(header));
  const weight = (encoding: string): number => weights.get(encoding) ?? weights.get('*') ?? 0;
  const [brotli, gzip] = [weight('br'), Math.max(weight('gzip'), weights.get('x-gzip') ?? 0)];
  if (brotli > 0 && brotli >= gzip) return 'br';
  return gzip > 0 ? 'gzip' : undefined;
}

/** Returns the encoding for a body of this size. Undefined if compression is not worth it or the caller takes none. */
export function encodingFor({ headers }: FastifyRequest, bytes: number): Encoding | undefined {
  return bytes > COMPRESS_FROM_BYTES ? preferredEncoding(headers['accept-encoding']) : undefined;
}

/** Sends a body, compressed if that is worth it and the caller takes it. */
export async function sendCompressed(reply: FastifyReply, body: string): Promise<unknown> {
  const encoding = encodingFor(reply.request, Buffer.byteLength(body));
  if (encoding === undefined) return await reply.send(body);
  return await reply.header('content-encoding', encoding).send(await compressors[encoding](body));
}

/** Returns the form that the caller prefers to JSON, by RFC 9110 section 12.5.1. Undefined for JSON. */
export function preferredFormat(
  accept: string | undefined,
  definition: Pick<Definition, 'columns' | 'sandboxed'>,
): OtherFormat | undefined {
  if (accept === undefined) return undefined;
  const weights = weightsOf(accept);
  const named = JSON_TYPES.find((type) => weights.has(type));
  const json = named === undefined ? 0 : (weights.get(named) ?? 0);
  const others = (hasCsv(definition) ? (['csv', 'ndjson'] as const) : (['ndjson'] as const))
    .map((format) => ({ format, weight: weights.get(MEDIA_TYPES[format]) ?? 0 }))
    // of equal weight: JSON if it is named, else a named CSV or NDJSON before a wildcard
    .filter(({ weight }) => weight > 0 && (named === JSON_TYPES[0] ? weight > json : weight >= json))
    .toSorted((a, b) => b.weight - a.weight);
  return others[0]?.format;
}

/** Returns false if If-None-Match has the tag (weak comparison, RFC 9110 section 13.1.2) or is `*`. */
export function isModified(ifNoneMatch: string | undefined, etag: string): boolean {
  if (ifNoneMatch === undefined) return true;
  const opaque = etag.replace(/^W\//, '');
  return !ifNoneMatch.split(',').some((tag) => tag.trim() === '*' || tag.trim().replace(/^W\//, '') === opaque);
}
