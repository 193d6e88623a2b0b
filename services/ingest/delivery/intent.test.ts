import { expect, test } from 'vitest';
import { MAX_IDS } from '../avro/decoder.ts';
import type { Rules } from '../evaluate/evaluate.ts';
import { decodeIntent, encodeIntent, tokenOf, type Intent } from './intent.ts';

const RULES: Rules = {
  version: 3,
  evaluatedAt: 1_767_000_000_000,
  retentionDays: 90,
  maxEventBytes: 8_388_608,
  rawAvro: false,
  schemaIds: [],
  period: 1_766_966_400,
};

test.each<[Intent, string]>([
  [{ incarnation: 0, first: 5, last: 9, rules: RULES }, 'b:0:5-9:3:1767000000000:90:8388608:0:1766966400'],
  [
    { incarnation: 2, first: 0, last: 0, rules: { ...RULES, rawAvro: true, schemaIds: [7, 2_147_483_647] } },
    'b:2:0-0:3:1767000000000:90:8388608:1:1766966400:7,2147483647',
  ],
])('%j is %s in the metadata of a commit, and back', (intent, metadata) => {
  expect(encodeIntent(intent)).toBe(metadata);
  expect(decodeIntent(metadata)).toEqual(intent);
});

test.each([
  undefined,
  null,
  '',
  'e',
  'b:0:5-9',
  'b:0:5-9:3:1:90:1:0:1:',
  'b:0:5-9:3:1:90:1:0:1:7,',
  'b:0:5-9:3:1:90:1:2:1',
  'x:0:5-9:3:1:90:1:0:1',
])('%j announces nothing', (metadata) => {
  expect(decodeIntent(metadata)).toBeUndefined();
});

test('a batch formed again has the same token, also where its intent is lost and only its rows are known', () => {
  const batch: Intent = { incarnation: 1, first: 5, last: 9, rules: { ...RULES, schemaIds: [7] } };
  expect(tokenOf('t', 3, { ...batch, first: 6, rules: { ...RULES, retentionDays: 1 } }, 0)).toBe(
    tokenOf('t', 3, batch, 0),
  );
});

test('no two batches share a token: another topic, life, partition, end, moment, or attempt', () => {
  const batch: Intent = { incarnation: 1, first: 5, last: 9, rules: RULES };
  const tokens = [
    tokenOf('t', 3, batch, 0),
    tokenOf('u', 3, batch, 0),
    tokenOf('t', 4, batch, 0),
    tokenOf('t', 3, { ...batch, incarnation: 2 }, 0),
    tokenOf('t', 3, { ...batch, last: 10 }, 0),
    tokenOf('t', 3, { ...batch, rules: { ...RULES, evaluatedAt: RULES.evaluatedAt + 1 } }, 0),
    tokenOf('t', 3, batch, 1),
    tokenOf('t', 3, batch, 2),
  ];
  expect(new Set(tokens).size).toBe(tokens.length);
});

test('the longest intent is within the 4,096 bytes that Kafka takes', () => {
  const schemaIds = Array.from({ length: MAX_IDS }, (_, i) => 2 ** 31 - 1 - i);
  const rules: Rules = {
    version: 65_535,
    evaluatedAt: 2 ** 53 - 1,
    retentionDays: 3_650,
    maxEventBytes: 2 ** 53 - 1,
    rawAvro: true,
    schemaIds,
    period: 2 ** 32 - 1,
  };
  const longest = encodeIntent({ incarnation: 2 ** 32 - 1, first: 2 ** 53 - 1, last: 2 ** 53 - 1, rules });
  expect(longest.length).toBeLessThan(4_096);
  expect(decodeIntent(longest)?.rules).toEqual(rules);
});
