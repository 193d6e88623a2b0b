import { expect, test } from 'vitest';
import { createRandom, weighted, weightedIndex, zipf } from './random.ts';

const many = <T>(count: number, draw: () => T): T[] => Array.from({ length: count }, draw);

test('the same seeds give the same numbers, any other seed gives others', () => {
  const first = createRandom(7, 1);
  const numbers = many(100, () => first.uint32());
  const again = createRandom(7, 1);
  expect(many(100, () => again.uint32())).toEqual(numbers);
  for (const seeds of [[7, 2], [8, 1], [1, 7], [7], [7 + 2 ** 32, 1]]) {
    const other = createRandom(...seeds);
    expect(many(100, () => other.uint32())).not.toEqual(numbers);
  }
});

test('the sequence is the one of every machine and version', () => {
  const random = createRandom(1);
  expect([random.uint32(), random.below(1000), random.hex(8), random.uuid(), random.letters(5)]).toMatchInlineSnapshot(`
    [
      1886859217,
      691,
      "5e9084fb",
      "c6e7bbc0-98b6-433c-80bc-47eedabb9c03",
      "ocrxd",
    ]
  `);
});

test('fractions are even', () => {
  const random = createRandom(3);
  const counts = Array.from({ length: 16 }, () => 0);
  for (const x of many(160_000, () => random.fraction())) counts[Math.floor(x * 16)]! += 1;
  // 10,000 each, deviation 97: five deviations
  expect(Math.max(...counts.map((c) => Math.abs(c - 10_000)))).toBeLessThan(500);
});

test('chance 0 never happens, chance 1 always', () => {
  const random = createRandom(4);
  expect(many(10_000, () => random.chance(0)).some(Boolean)).toBe(false);
  expect(many(10_000, () => random.chance(1)).every(Boolean)).toBe(true);
});

test('a lognormal has its median and its spread', () => {
  const random = createRandom(5);
  const values = many(100_001, () => random.logNormal(120, 0.8)).toSorted((a, b) => a - b);
  expect(values[50_000]! / 120).toBeCloseTo(1, 1);
  // 84.13 % lie below one deviation
  expect(Math.log(values[84_134]! / 120)).toBeCloseTo(0.8, 1);
});

test('an UUID is one of version 4', () => {
  const random = createRandom(6);
  for (const id of many(1000, () => random.uuid()))
    expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
});

test('values come in proportion to their weights, and those of weight 0 never', () => {
  const random = createRandom(8);
  const draw = weighted({ a: 60, b: 30, c: 10, never: 0 });
  const counts: Record<string, number> = {};
  for (const value of many(100_000, () => draw(random))) counts[value] = (counts[value] ?? 0) + 1;
  expect(Object.keys(counts).toSorted()).toEqual(['a', 'b', 'c']);
  expect(counts['a']! / 100_000).toBeCloseTo(0.6, 1.7);
  expect(counts['c']! / 100_000).toBeCloseTo(0.1, 1.7);
});

test('zipf: the first of a thousand weighs a thousand times the last', () => {
  const random = createRandom(9);
  const weights = zipf(1000, 1);
  expect(weights[0]! / weights[999]!).toBeCloseTo(1000);
  const index = weightedIndex(weights);
  const firsts = many(100_000, () => index(random)).filter((i) => i === 0).length;
  expect(firsts / 100_000).toBeCloseTo(1 / weights.reduce((a, b) => a + b), 1.7);
});

test('weights that make no sense are refused', () => {
  expect(() => weightedIndex([0, 0])).toThrow('weights');
  expect(() => weightedIndex([1, -1])).toThrow('weights');
  expect(() => weightedIndex([Number.NaN])).toThrow('weights');
});
