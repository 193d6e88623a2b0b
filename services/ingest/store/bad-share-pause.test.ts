import { describe, expect, test } from 'vitest';
import type { ClickHouse, Read, Statement } from '../../../common/clickhouse/clickhouse.ts';
import { createBadShares, type Pause } from './bad-share-pause.ts';
import { createShardOf } from './shard.ts';

/**
 * The bad-share pause of a partition whose ledger says this; `looks` counts how often it was read, `awaited` has the
 * tables of which each statement needs all rows.
 */
function badShareOf(percent: number, window: number) {
  const ledger = { bad: 0, messages: 0, looks: 0, failures: 0, awaited: [] as (readonly string[])[] };
  const clickhouse = {
    read: async ({ fresh }: Read) => {
      ledger.looks++;
      ledger.awaited.push(fresh?.tables ?? []);
      const { bad, messages } = ledger;
      return { body: Buffer.from(JSON.stringify({ bad, messages })), readRows: undefined, readBytes: undefined };
    },
    execute: async ({ fresh }: Statement) => {
      ledger.awaited.push(fresh?.tables ?? []);
      if (ledger.failures-- > 0) throw new Error('not written');
    },
  } as Partial<ClickHouse> as ClickHouse;
  const badShare = createBadShares(clickhouse, createShardOf(clickhouse), { percent, window, pauseSeconds: 60 })(
    't',
    3,
  );
  const look = (bad: number, messages: number): Promise<boolean> => {
    Object.assign(ledger, { bad, messages });
    return badShare.pauses(0, 0);
  };
  return { ledger, badShare, look };
}

describe('a partition is paused', () => {
  test.each([
    ['not at the set share of the last messages', 50, 100, false],
    ['at more than that', 51, 100, true],
    ['not for a few bad messages of a small topic, however large their share', 50, 50, false],
    ['for so many of a small topic that the rest cannot make up for them', 51, 51, true],
    ['not by the share of a batch that is larger than the window', 400, 1_000, false],
    ['by more than that', 501, 1_000, true],
  ])('%s', async (_, bad, messages, isPaused) => {
    expect(await badShareOf(50, 100).look(bad, messages)).toBe(isPaused);
  });

  test('also if its pause could not be written at the first try', async () => {
    const { ledger, look } = badShareOf(50, 100);
    ledger.failures = 1;
    await expect(look(51, 100)).rejects.toThrow('not written');
    expect(await look(51, 100)).toBe(true);
  });

  test('by a ledger and earlier pauses that the replica has whole', async () => {
    const { ledger, look } = badShareOf(50, 100);
    await look(51, 100);
    expect(ledger.awaited).toEqual([['batches'], ['paused_partitions']]);
  });

  test('never at 100 percent', async () => {
    expect(await badShareOf(100, 10).look(1_000, 1_000)).toBe(false);
  });
});

describe('the ledger is looked at', () => {
  test('before anything else, then only when what was bad and every bad one since could be too many', async () => {
    const { ledger, badShare, look } = badShareOf(50, 100);
    const looks: number[] = [];
    for (const bad of [0, 30, 20, 1, 10, 1]) {
      badShare.add(bad);
      await look(ledger.looks === 0 ? 0 : 40, 51);
      looks.push(ledger.looks);
    }
    expect(looks).toEqual([1, 1, 1, 2, 2, 3]);
  });

  test('after a pause, only when the bad messages since could be too many', async () => {
    const { ledger, badShare, look } = badShareOf(50, 100);
    expect(await look(51, 100)).toBe(true);
    badShare.add(1);
    await look(0, 0);
    expect(ledger.looks).toBe(1);
  });

  test('not again before another bad message', async () => {
    const { ledger, look } = badShareOf(50, 100);
    await look(90, 200);
    await look(90, 200);
    expect(ledger.looks).toBe(1);
  });
});

const pauseOf = (partition: number, leftMs: number): Pause => ({
  topic: 't',
  partition,
  incarnation: 1,
  next: 9,
  bad: 6,
  messages: 100,
  paused_until: '2028-01-01T00:00:00Z',
  leftMs,
});

/** The bad-share pauses of a ClickHouse that has these pauses; `reads` has the parameters of each read. */
function badSharesOf(pauses: readonly Pause[]) {
  const reads: Read['params'][] = [];
  const clickhouse = {
    async read({ params }: Read) {
      reads.push(params);
      const body = Buffer.from(pauses.map((pause) => JSON.stringify(pause)).join('\n'));
      return { body, readRows: undefined, readBytes: undefined };
    },
  } as Partial<ClickHouse> as ClickHouse;
  const limits = { percent: 50, window: 100, pauseSeconds: 60 };
  return { reads, badShares: createBadShares(clickhouse, createShardOf(clickhouse), limits) };
}

test.each([
  [1, 9],
  [2, 0],
])('after a pause in life 1 of the topic, messages of life %i count from offset %i on', async (life, from) => {
  const { reads, badShares } = badSharesOf([pauseOf(3, 0)]);
  const badShare = badShares('t', 3);
  expect(await badShare.paused()).toBeUndefined();
  await badShare.pauses(life, 20);
  expect(reads.at(-1)?.['from']).toBe(from);
});

test('a pause is of its partition, and does not repeat it, which each log line of a lane has; partitions that ask together share one read', async () => {
  const { reads, badShares } = badSharesOf([pauseOf(2, 7), pauseOf(3, 5)]);
  const { topic: _, partition: __, ...decision } = pauseOf(3, 5);
  const asked = [badShares('t', 3), badShares('t', 1), badShares('other', 3)].map((badShare) => badShare.paused());
  expect(await Promise.all(asked)).toEqual([decision, undefined, undefined]);
  expect(reads).toHaveLength(1);
});
