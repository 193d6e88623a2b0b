import fastify, { type FastifyRequest } from 'fastify';
import { expect, it } from 'vitest';
import { encodingFor, isModified, preferredEncoding, sendCompressed } from './negotiate.ts';

it.each<[string | undefined, string | undefined]>([
  [undefined, undefined],
  ['', undefined],
  ['gzip', 'gzip'],
  ['x-gzip', 'gzip'],
  ['br', 'br'],
  ['gzip, br', 'br'],
  ['gzip;q=1, br;q=0.9', 'gzip'],
  ['*', 'br'],
  ['*;q=0', undefined],
  ['br;q=0, *', 'gzip'],
  ['gzip;q=0', undefined],
  ['identity, gzip;q=0.1', 'gzip'],
  ['zstd, deflate', undefined],
  ['GZIP', 'gzip'],
  ['gzip;level=9;q=0.5', 'gzip'],
  [';q=1', undefined],
  ['gzip;q=abc', 'gzip'],
])('accept-encoding %j: %s', (header, encoding) => {
  expect(preferredEncoding(header)).toBe(encoding);
});

it('bodies over 1 KiB are compressed', () => {
  const request = { headers: { 'accept-encoding': 'gzip' } } as FastifyRequest;
  expect([encodingFor(request, 1024), encodingFor(request, 1025)]).toEqual([undefined, 'gzip']);
});

it('a text has the size of its UTF-8', async () => {
  const app = fastify();
  app.get('/', async (_, reply) => await sendCompressed(reply, 'é'.repeat(513)));
  const { headers } = await app.inject({ url: '/', headers: { 'accept-encoding': 'gzip' } });
  expect(headers['content-encoding']).toBe('gzip');
});

it.each<[string | undefined, boolean]>([
  [undefined, true],
  ['W/"a"', false],
  ['"a"', false],
  ['*', false],
  ['"b", W/"a"', false],
  ['"b"', true],
  ['', true],
  ['a', true],
  ['W/"A"', true],
])('if-none-match %j: modified %s', (header, modified) => {
  expect(isModified(header, 'W/"a"')).toBe(modified);
});
