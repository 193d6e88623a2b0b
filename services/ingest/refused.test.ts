import fc from 'fast-check';
import { expect, test } from 'vitest';
import { refusedOf } from './refused.ts';

test('finds every item that is refused by itself, in order, and none that is not', async () => {
  await fc.assert(fc.asyncProperty(fc.array(fc.boolean(), { maxLength: 40, size: 'max' }), async (bad) => {
    const found = await refusedOf([...bad.keys()], async (items) => (items.some((i) => bad[i]) ? `no ${items.length}` : undefined));
    expect(found).toEqual([...bad.keys()].filter((i) => bad[i]).map((item) => ({ item, detail: 'no 1' })));
  }));
});

test('asks little for one among many', async () => {
  let asked = 0;
  await refusedOf(Array.from({ length: 32_768 }, (_, i) => i), async (items) => {
    asked++;
    return items.includes(20_000) ? 'no' : undefined;
  });
  expect(asked).toBe(31);
});

test('items that are refused only together are not found', async () => {
  expect(await refusedOf([1, 2, 3], async (items) => (items.length > 1 ? 'too many' : undefined))).toEqual([]);
});

test('a question without an answer ends the search', async () => {
  await expect(refusedOf([1, 2], async () => Promise.reject(new Error('away')))).rejects.toThrow('away');
});
