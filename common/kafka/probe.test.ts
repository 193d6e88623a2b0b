import { expect, test } from 'vitest';
import { parseAddress } from './probe.ts';

test('an address is split into host and port', () => {
  expect(parseAddress('kafka.example:9092')).toEqual({ host: 'kafka.example', port: 9092 });
  expect(parseAddress('[::1]:19092')).toEqual({ host: '::1', port: 19092 });
});
