import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { createLogger } from '../../logger.ts';
import { createMergeHold } from './merge-hold.ts';

const LARGE = 16_777_216;
const SECOND = 1_000;
const STOP = 'SYSTEM STOP MERGES';
const START = 'SYSTEM START MERGES';

let may: string;
let failing: string | undefined;
let did: string[];
let merges: ReturnType<typeof createMergeHold>;
beforeEach(() => {
  vi.useFakeTimers();
  [may, failing, did] = ['1\n', undefined, []];
  merges = createMergeHold(async (sql) => {
    if (sql.startsWith('SYSTEM')) did.push(sql);
    if (sql === failing) throw new Error('no');
    return sql.startsWith('SYSTEM') ? '' : may;
  }, createLogger('silent'));
});
afterEach(() => vi.useRealTimers());

async function insert(bytes = LARGE, table = 'edge_logs'): Promise<void> {
  merges.inserted(table, bytes);
  await vi.advanceTimersByTimeAsync(0);
}

test('merges are held from a large insert until none has come for three seconds', async () => {
  await insert(LARGE - 1);
  expect(did).toEqual([]);
  await insert();
  expect(did).toEqual([STOP]);
  await vi.advanceTimersByTimeAsync(2 * SECOND);
  await insert();
  await vi.advanceTimersByTimeAsync(2 * SECOND);
  expect(did).toEqual([STOP]);
  await vi.advanceTimersByTimeAsync(2 * SECOND);
  expect(did).toEqual([STOP, START]);
  await vi.advanceTimersByTimeAsync(60 * SECOND);
  expect(did).toEqual([STOP, START]);
});

test('they go on after 200 large inserts into one table, and may be held again', async () => {
  await insert();
  for (let i = 0; i < 199; i++) await Promise.all([insert(), insert(LARGE, 'auth_logs')]);
  expect(did).toEqual([STOP]);
  may = '0\n';
  await insert();
  expect(did).toEqual([STOP, START]);
  await insert();
  expect(did).toEqual([STOP, START]);
  may = '1\n';
  await insert();
  expect(did).toEqual([STOP, START, STOP]);
});

test('they are not held while merges run, or are late', async () => {
  may = '0\n';
  await insert();
  expect(did).toEqual([]);
});

test.each([
  ['release', START],
  ['hold', STOP],
])('after a %s that failed, merges are released as soon as that works', async (_, statement) => {
  failing = statement;
  await insert();
  await vi.advanceTimersByTimeAsync(5 * SECOND);
  failing = undefined;
  await vi.advanceTimersByTimeAsync(2 * SECOND);
  expect(did.at(-1)).toBe(START);
  const { length } = did;
  await vi.advanceTimersByTimeAsync(60 * SECOND);
  expect(did).toHaveLength(length);
});

test('nothing is left to do after close', async () => {
  await insert();
  await merges.close();
  await vi.advanceTimersByTimeAsync(60 * SECOND);
  expect(did).toEqual([STOP]);
});
