import { expect, test } from 'vitest';
import { limited } from './limited.ts';

test('as many works as the limit run at a time, in the order of calls, also after one has failed', async () => {
  const run = limited(2);
  const works = Array.from({ length: 5 }, () => Promise.withResolvers<number>());
  const began: number[] = [];
  const results = works.map(async ({ promise }, i) => {
    try {
      return await run(async () => {
        began.push(i);
        return await promise;
      });
    } catch {
      return 'failed';
    }
  });
  const settled = async (): Promise<number[]> => {
    await new Promise(setImmediate);
    return began;
  };
  expect(await settled()).toEqual([0, 1]);
  works[1]!.reject(new Error());
  expect(await settled()).toEqual([0, 1, 2]);
  works[0]!.resolve(0);
  works[2]!.resolve(2);
  expect(await settled()).toEqual([0, 1, 2, 3, 4]);
  works[3]!.resolve(3);
  works[4]!.resolve(4);
  expect(await Promise.all(results)).toEqual([0, 'failed', 2, 3, 4]);
});
