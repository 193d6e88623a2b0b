import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { ApiError } from '../../common/http/errors.ts';
import { decompressBody, eventTexts } from './body.ts';

const texts = (body: string | Buffer): string[] => [...eventTexts(Buffer.from(body))];

function refusal(work: () => unknown): ApiError {
  try {
    work();
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
  throw new Error('not refused');
}

describe('the events of a body', () => {
  it.each([
    ['a list', '[{"a":1},{"a":2}]'],
    ['a list with blanks', ' [ {"a":1} ,\n{"a":2} ]\n'],
    ['a batch', '{"batch":[{"a":1},{"a":2}]}'],
    ['a batch before a comma', '{"batch":[{"a":1},{"a":2}],"x":1,}'],
    ['a batch among other members', '{"appname":{"project":1},"x":{"batch":[]},"batch":[{"a":1},{"a":2}],"y":"]"}'],
    ['an event per line', '{"a":1}\n{"a":2}'],
    ['lines with an end, blank ones and carriage returns', '{"a":1}\r\n\r\n  {"a":2}\r\n'],
  ])('%s', (_, body) => {
    expect(texts(body)).toEqual(['{"a":1}', '{"a":2}']);
  });

  it('one event, also over several lines, is one', () => {
    expect(texts('{\n "a": 1,\n "b": [1,\n2]\n}\n')).toEqual(['{\n "a": 1,\n "b": [1,\n2]\n}']);
    expect(texts('{"batch":"not a list"}')).toEqual(['{"batch":"not a list"}']);
  });

  it.each(['project', 'metadata', 'timestamp', 'event_message', 'message', 'id', 'pro\\u006aect'])(
    'an object with a batch and a %s of its own is one event',
    (key) => {
      for (const event of [`{"${key}":1,"batch":[{"a":1}]}`, `{"batch":[],"x":1,"batch":[1],"${key}":null}`])
        expect(texts(event)).toEqual([event]);
    },
  );

  it('keeps every byte: digits, duplicate keys, escapes, brackets in strings', () => {
    const event = '{"n":12345678901234567890.00,"n":1e400,"s":"\\"]}[{\\\\","\\u0061":"\\ud800"}';
    expect(texts(`[${event},${event}]`)).toEqual([event, event]);
  });

  it('a list may be empty', () => {
    expect(texts('[]')).toEqual([]);
    expect(texts('{"batch":[ ]}')).toEqual([]);
  });

  it('what is broken is handed on as it is, for the event to be named', () => {
    expect(texts('[{"a":1},{"b":},3]')).toEqual(['{"a":1}', '{"b":}', '3']);
    expect(texts('{"a":1}\n{"b"\n[1]')).toEqual(['{"a":1}', '{"b"', '[1]']);
    for (const broken of ['{"a"', '{"\\x":1}', '{"a\u0001\\n":1,"batch":[{}]}', '{"\\":1}'])
      expect(texts(broken)).toEqual([broken]);
  });

  it.each([
    ['nothing', ''],
    ['blanks', ' \n'],
    ['a list without end', '[{"a":1},{"a":2}'],
    ['a list and more', '[{"a":1}] x'],
    ['a list that another bracket ends', '[{"a":1}}'],
    ['a batch without end', '{"batch":[{"a":1},{"a":2}'],
    ['a batch whose object has no end', '{"batch":[{"a":1},{"a":2}]'],
    ['a second batch', '{"batch":[{"a":1}],"x":1,"b\\u0061tch":[{"a":2}]}'],
    ['a list behind a batch', '{"batch":[{"a":1}] [{"a":2}]}'],
    ['a list behind the comma of a batch', '{"batch":[{"a":1}],[{"a":2}]}'],
    ['an object behind a batch', '{"batch":[{"a":1}] {"a":2}}'],
    ['bytes that are not UTF-8', Buffer.from([0x7b, 0xff, 0x7d])],
  ])('is refused with 400: %s', (_, body) => {
    expect(refusal(() => texts(body)).status).toBe(400);
  });
});

describe('encodings', () => {
  const body = Buffer.from('{"a":1}'.repeat(1000));
  it.each([
    ['gzip', gzipSync(body)],
    ['X-GZIP', gzipSync(body)],
    ['deflate', deflateSync(body)],
    ['deflate', deflateRawSync(body)],
    ['br', brotliCompressSync(body)],
    ['zstd', zstdCompressSync(body)],
    ['identity', body],
    [undefined, body],
  ])('%s', async (encoding, sent) => {
    expect(await decompressBody(sent, encoding, body.length)).toEqual(body);
  });

  it('others are 415, and so are several at once', async () => {
    for (const encoding of ['snappy', 'gzip, br', 'constructor'])
      expect(await decompressBody(body, encoding, 1e6).catch((e: unknown) => e)).toMatchObject({ status: 415 });
  });

  it('gzip may have several members', async () => {
    const twice = Buffer.concat([gzipSync(body), gzipSync(body)]);
    expect(await decompressBody(twice, 'gzip', 2 * body.length)).toEqual(Buffer.concat([body, body]));
  });

  it.each([
    ['deflate', deflateSync],
    ['deflate', deflateRawSync],
    ['br', brotliCompressSync],
    ['zstd', zstdCompressSync],
  ])('%s that goes on after its end is 400, because what follows would be lost', async (encoding, compress) => {
    const twice = Buffer.concat([compress(body), compress(body)]);
    expect(await decompressBody(twice, encoding, 1e6).catch((e: unknown) => e)).toMatchObject({ status: 400 });
  });

  it.each([
    ['gzip', gzipSync],
    ['deflate', deflateSync],
    ['br', brotliCompressSync],
    ['zstd', zstdCompressSync],
  ])('a %s bomb is 413, and what is not in the encoding 400', async (encoding, compress) => {
    expect(
      await decompressBody(compress(Buffer.alloc(8 * 1024 * 1024)), encoding, 1024 * 1024).catch((e: unknown) => e),
    ).toMatchObject({ status: 413 });
    expect(await decompressBody(Buffer.from('no such thing'), encoding, 1024).catch((e: unknown) => e)).toMatchObject({
      status: 400,
    });
  });
});
