import { expect, it } from 'vitest';
import { addressOf, endOf } from './address.ts';

it.each([
  ['127.0.0.1', 'http://127.0.0.1:4000/x'],
  ['localhost', 'http://localhost:4000/x'],
  ['::1', 'http://[::1]:4000/x'],
  ['::', 'http://[::]:4000/x'],
  ['fe80::1', 'http://[fe80::1]:4000/x'],
])('the address of %s is one', (host, href) => {
  expect(new URL('/x', addressOf(host, 4000)).href).toBe(href);
});

it('both ends of a connection name its address alike', () => {
  const ends = ['127.0.0.1', '::ffff:127.0.0.1', '::FFFF:127.0.0.1'].map((host) => endOf(host, 4000));
  expect(new Set(ends)).toEqual(new Set(['127.0.0.1:4000']));
  expect([endOf('::1', 4000), endOf('::ffff:1', 4000)]).toEqual(['::1:4000', '::ffff:1:4000']);
});
