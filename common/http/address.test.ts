import { expect, it } from 'vitest';
import { addressOf } from './address.ts';

it.each([
  ['127.0.0.1', 'http://127.0.0.1:4000/x'],
  ['localhost', 'http://localhost:4000/x'],
  ['::1', 'http://[::1]:4000/x'],
  ['::', 'http://[::]:4000/x'],
  ['fe80::1', 'http://[fe80::1]:4000/x'],
])('the address of %s is one', (host, href) => {
  expect(new URL('/x', addressOf(host, 4000)).href).toBe(href);
});
