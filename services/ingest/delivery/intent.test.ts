import { expect, test } from 'vitest';
import { MAX_IDS } from './avro/decoder.ts';
import { decodeIntent, encodeIntent, tokenOf, type Intent } from './intent.ts';

test.each<[Intent, string]>([
  [{ incarnation: 0, first: 5, last: 9, judgedAt: 1_767_000_000_000 }, 'i:0:5-9:1767000000000'],
  [{ incarnation: 0, first: 5, last: 9, judgedAt: 1, schemaIds: [7], isRest: true }, 'r:0:5-9:1:7'],
  [{ incarnation: 2, first: 0, last: 0, judgedAt: 1, schemaIds: [7, 2_147_483_647] }, 'i:2:0-0:1:7,2147483647'],
])('%j is %s in the metadata of a commit, and back', (intent, metadata) => {
  expect(encodeIntent(intent)).toBe(metadata);
  expect(decodeIntent(metadata)).toEqual(intent);
});

test.each([undefined, null, '', 'e', 'i:0:5-9', 'i:0:5-9:1:', 'i:0:5-9:1:7,', 'i:0:5-9:1:x', 'x:0:5-9:1'])('%j announces nothing', (metadata) => {
  expect(decodeIntent(metadata)).toBeUndefined();
});

test('a batch formed again has the same token, also where its intent is lost and only its rows are known', () => {
  const batch: Intent = { incarnation: 1, first: 5, last: 9, judgedAt: 1_767_000_000_000, schemaIds: [7] };
  expect(tokenOf('t', 3, { incarnation: 1, first: 6, last: 9, judgedAt: 1_767_000_000_000 })).toBe(tokenOf('t', 3, batch));
});

test('no two batches share a token: another topic, life, partition, end, moment, or the rest of a batch', () => {
  const batch: Intent = { incarnation: 1, first: 5, last: 9, judgedAt: 1_767_000_000_000 };
  const tokens = [
    tokenOf('t', 3, batch), tokenOf('u', 3, batch), tokenOf('t', 4, batch), tokenOf('t', 3, { ...batch, incarnation: 2 }), tokenOf('t', 3, { ...batch, last: 10 }),
    tokenOf('t', 3, { ...batch, judgedAt: batch.judgedAt + 1 }), tokenOf('t', 3, { ...batch, isRest: true }),
  ];
  expect(new Set(tokens).size).toBe(tokens.length);
});

test('the longest intent is within the 4,096 bytes that Kafka takes', () => {
  const longest = encodeIntent({ incarnation: 2 ** 32 - 1, first: 2 ** 53 - 1, last: 2 ** 53 - 1, judgedAt: 2 ** 53 - 1, schemaIds: Array.from({ length: MAX_IDS }, (_, i) => 2 ** 31 - 1 - i) });
  expect(longest.length).toBeLessThan(4_096);
  expect(decodeIntent(longest)?.schemaIds).toHaveLength(MAX_IDS);
});
