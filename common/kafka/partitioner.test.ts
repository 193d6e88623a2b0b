import { createRequire } from 'node:module';
import { performance } from 'node:perf_hooks';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { murmur2, partitionOf } from './partitioner.ts';

const require = createRequire(import.meta.url);
const clientMurmur2 = require('kafkajs/src/producer/partitioners/default/murmur2.js') as (key: Buffer) => number;

test("the hashes equal those of the Java client's own tests", () => {
  // org.apache.kafka.common.utils.UtilsTest.testMurmur2
  const hashes: Record<string, number> = {
    '21': -973932308,
    foobar: -790332482,
    'a-little-bit-long-string': -985981536,
    'a-little-bit-longer-string': -1486304829,
    lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8: -58897971,
  };
  for (const [key, hash] of Object.entries(hashes)) expect(murmur2(Buffer.from(key)), key).toBe(hash);
  expect(murmur2(Buffer.from('abc'))).toBe(479470107);
});

test('every key goes to the partition that kafkajs would choose', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), fc.integer({ min: 1, max: 1_000 }), (bytes, partitions) => {
      expect(partitionOf(bytes, partitions)).toBe((clientMurmur2(Buffer.from(bytes)) & 0x7fffffff) % partitions);
    }),
    { numRuns: 500 },
  );
});

test('a key of 8 MB takes milliseconds, about eight times as long as one of 1 MB', () => {
  const [small, large] = [1, 8].map((mb) => {
    const key = Buffer.alloc(mb * 1024 * 1024, 'k');
    const times = Array.from({ length: 5 }, () => {
      const from = performance.now();
      murmur2(key);
      return performance.now() - from;
    });
    return Math.min(...times);
  }) as [number, number];
  expect(large).toBeLessThan(Math.max(small * 24, 100));
});
