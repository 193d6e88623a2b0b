import { afterEach, expect, test, vi } from 'vitest';
import { ClickHouseError, fromEngine, fromSystem } from '../../../common/clickhouse/errors.ts';
import { createLogger } from '../../../common/logger.ts';
import { attempt, FAILED_REST_MS, pauseAfter, restUntil, valuesOf, type Context } from './context.ts';
import { createRollupMetrics } from './metrics.ts';

const contextWith = (percent: number, wait: Context['wait'] = () => Promise.resolve()): Context =>
  ({
    clickhouse: { shard: undefined },
    settings: { ROLLUP_BUILD_PERCENT: percent },
    logger: createLogger('silent'),
    metrics: createRollupMetrics(undefined),
    wait,
  }) as unknown as Context;

const reported = (code: number, name: string): ClickHouseError =>
  fromEngine(`Code: ${code}. DB::Exception: text. (${name})`, false)!;

afterEach(() => vi.restoreAllMocks());

test('attempts that change nothing share their part of the time; what waits for others has its own', () => {
  const context = contextWith(25);
  let now = 0;
  vi.spyOn(performance, 'now').mockImplementation(() => now);
  const after = (ms: number, outcome: string): number => {
    const since = now;
    now += ms;
    return restUntil(context, outcome, since);
  };
  expect([after(1000, 'incomplete'), after(1000, 'differs'), after(100, 'unfinished')]).toEqual([4000, 8000, 2400]);
  now = 20_000;
  expect(after(1000, 'incomplete')).toBe(24_000);
  expect(after(1000, 'failed')).toBe(21_000 + FAILED_REST_MS);
  expect(restUntil(contextWith(100), 'incomplete', 21_000)).toBe(now);
});

test('a build is followed by a pause that leaves it its part of the time', async () => {
  const waits: number[] = [];
  await pauseAfter(
    contextWith(25, async (ms) => void waits.push(ms)),
    1000,
  );
  expect(waits).toEqual([3000]);
});

test('of several failures, one that is to end the process is thrown, wherever it stands', () => {
  const [retry, defect] = [reported(210, 'NETWORK_ERROR'), new TypeError('undefined')];
  const failed = (reason: unknown) => ({ status: 'rejected', reason }) as const;
  const done = { status: 'fulfilled', value: 1 } as const;
  expect(() => valuesOf([failed(retry), failed(defect)])).toThrow(defect);
  expect(() => valuesOf([failed(defect), failed(retry)])).toThrow(defect);
  expect(() => valuesOf([done, failed(retry)])).toThrow(retry);
  expect(valuesOf([done, done])).toEqual([1, 1]);
});

test.each([
  ['a block that cannot be read', reported(40, 'CHECKSUM_DOESNT_MATCH')],
  ['a number that we do not know', reported(12_345, 'NEW_IN_27')],
  ['a truncated file', reported(33, 'CANNOT_READ_ALL_DATA')],
  ['a disk without room for its period', reported(243, 'NOT_ENOUGH_SPACE')],
  ['a missing right', reported(497, 'ACCESS_DENIED')],
])('%s fails the work on its rollup and period only', async (_, error) => {
  const context = contextWith(100);
  const told = vi.spyOn(context.logger, 'error');
  expect(await attempt(context, { work: 'audit', rollup: 'r' }, () => Promise.reject(error))).toBeUndefined();
  expect(told).toHaveBeenCalledWith({ work: 'audit', rollup: 'r', err: error }, 'rollup_work_failed');
});

test.each([
  ['a server that is away', fromSystem(Object.assign(new Error('refused'), { code: 'ECONNREFUSED' }), false, true)],
  ['Keeper that is away', reported(999, 'KEEPER_EXCEPTION')],
  ['a server that is overloaded', reported(745, 'SERVER_OVERLOADED')],
  ['a defect of ours', new TypeError('undefined')],
])('%s is more than the failure of this work', async (_, error) => {
  await expect(attempt(contextWith(100), { work: 'audit' }, () => Promise.reject(error))).rejects.toBe(error);
});

test('what fails because the service stops is not told of', async () => {
  const stopped = new Error('stopped');
  const context = contextWith(100, () => Promise.reject(stopped));
  const told = vi.spyOn(context.logger, 'error');
  const work = attempt(context, { work: 'audit' }, () => Promise.reject(reported(497, 'ACCESS_DENIED')));
  await expect(work).rejects.toBe(stopped);
  expect(told).not.toHaveBeenCalled();
});
