import { expect, test } from 'vitest';
import { nodes } from './parsers.ts';

test.each([
  // of the host u with the port 1, if one looks at what stands before the comma only
  ['a comma in a password', 'http://u:1,2@a:8123/logs', /in a password a comma is written %2C$/],
  ['a node twice', 'http://u:p@a:8123/logs,http://b:8123/logs, http://A:8123/logs', /^names a:8123 twice$/],
])('%s is refused', (_, value, message) => {
  expect(() => nodes(value)).toThrow(message);
});
