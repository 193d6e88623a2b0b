import { describe, expect, test } from 'vitest';
import type { ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { createBadShare, createShareCount } from './bad-share-pause.ts';

describe('a partition is paused', () => {
  test('at more than the set share of the last messages, not at the share itself', () => {
    const count = createShareCount({ percent: 50, window: 100 });
    expect(count.look({ bad: 50, messages: 100 })).toBe(false);
    expect(count.look({ bad: 51, messages: 100 })).toBe(true);
  });

  test('not for a few bad messages of a small topic, however large their share', () => {
    const count = createShareCount({ percent: 50, window: 100 });
    expect(count.look({ bad: 50, messages: 50 })).toBe(false);
    expect(count.look({ bad: 51, messages: 51 })).toBe(true);
  });

  test('by the share of a batch that is larger than the window', () => {
    const count = createShareCount({ percent: 50, window: 100 });
    expect(count.look({ bad: 400, messages: 1_000 })).toBe(false);
    expect(count.look({ bad: 501, messages: 1_000 })).toBe(true);
  });

  test('never at 100 percent', () => {
    const count = createShareCount({ percent: 100, window: 10 });
    expect(count.look({ bad: 1_000, messages: 1_000 })).toBe(false);
  });
});

describe('the ledger is looked at', () => {
  test('before anything else: the last owner may have seen too many', () => {
    expect(createShareCount({ percent: 50, window: 100 }).mayBeTooMuch()).toBe(true);
  });

  test('only when what was bad and every bad one since could be too many', () => {
    const count = createShareCount({ percent: 50, window: 100 });
    expect(count.look({ bad: 0, messages: 0 })).toBe(false);
    const looks = [30, 20, 1].map((bad) => {
      count.add(bad);
      return count.mayBeTooMuch();
    });
    expect(looks).toEqual([false, false, true]);
    expect(count.look({ bad: 40, messages: 51 })).toBe(false);
    count.add(10);
    expect(count.mayBeTooMuch()).toBe(false);
    count.add(1);
    expect(count.mayBeTooMuch()).toBe(true);
  });

  test('not again before another bad message', () => {
    const count = createShareCount({ percent: 50, window: 100 });
    count.look({ bad: 90, messages: 200 });
    expect(count.mayBeTooMuch()).toBe(false);
  });
});

test('a pause does not repeat its partition, which each log line of a lane has', async () => {
  const decision = { incarnation: 1, next: 9, bad: 60, messages: 100, paused_until: '2028-01-01T00:00:00Z', leftMs: 5 };
  const body = Buffer.from(JSON.stringify({ topic: 't', partition: 3, ...decision }));
  const clickhouse = { read: async () => ({ body, readRows: undefined, readBytes: undefined }) } as Partial<ClickHouse>;
  const badShare = createBadShare(clickhouse as ClickHouse, 't', 3, { percent: 50, window: 100, pauseSeconds: 60 });
  expect(await badShare.paused()).toEqual(decision);
});
