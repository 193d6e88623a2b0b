import { expect, test } from 'vitest';
import type { Read } from '../../../common/clickhouse/clickhouse.ts';
import { reconcile } from './reconcile.ts';
import { statements } from '../store/statements.ts';

/** An account without faults of its ranges. */
const account = {
  topic: 't',
  incarnation: 0,
  partition: 1,
  first: 0,
  last: 9,
  consumed: 10,
  stored: 5,
  dead_lettered: 3,
  skipped: 2,
  gap: 1,
  replayed: 0,
};

test('an account whose sums do not agree does not hold, although each of its ranges does', async () => {
  const of = (counts: Partial<typeof account>) => {
    const row = { ...account, ...counts, faults: 0, first_fault: '', first_fault_first: 0, first_fault_last: 0 };
    const read = async ({ sql }: Read) => ({
      body: Buffer.from(sql === statements.reconcile ? JSON.stringify(row) : ''),
      readRows: undefined,
      readBytes: undefined,
    });
    return reconcile({ read }, 90, 0);
  };
  expect(await of({})).toEqual({ ok: true, partitions: [account], faults: [] });
  for (const counts of [{ stored: 4 }, { dead_lettered: 4 }, { skipped: 3 }, { consumed: 11 }])
    expect(await of(counts)).toMatchObject({
      ok: false,
      faults: ['t incarnation 0 partition 1: the sums do not agree'],
    });
});
