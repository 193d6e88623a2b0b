import { expect, test } from 'vitest';
import { MAX_IDS } from './avro/decoder.ts';
import { decodeIntent, encodeIntent, type Intent } from './intent.ts';

test.each<[Intent, string]>([
  [{ incarnation: 0, first: 5, last: 9, judgedAt: 1_767_000_000_000 }, 'i:0:5-9:1767000000000'],
  [{ incarnation: 2, first: 0, last: 0, judgedAt: 1, schemaIds: [7, 2_147_483_647] }, 'i:2:0-0:1:7,2147483647'],
])('%j is %s in the metadata of a commit, and back', (intent, metadata) => {
  expect(encodeIntent(intent)).toBe(metadata);
  expect(decodeIntent(metadata)).toEqual(intent);
});

test.each([undefined, null, '', 'e', 'i:0:5-9', 'i:0:5-9:1:', 'i:0:5-9:1:7,', 'i:0:5-9:1:x', 'x:0:5-9:1'])('%j announces nothing', (metadata) => {
  expect(decodeIntent(metadata)).toBeUndefined();
});

test('the longest intent is within the 4,096 bytes that Kafka takes', () => {
  const longest = encodeIntent({ incarnation: 2 ** 32 - 1, first: 2 ** 53 - 1, last: 2 ** 53 - 1, judgedAt: 2 ** 53 - 1, schemaIds: Array.from({ length: MAX_IDS }, (_, i) => 2 ** 31 - 1 - i) });
  expect(longest.length).toBeLessThan(4_096);
  expect(decodeIntent(longest)?.schemaIds).toHaveLength(MAX_IDS);
});
