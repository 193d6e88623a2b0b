import { expect, test } from 'vitest';
import type { Rows } from '../../../common/clickhouse/clickhouse.ts';
import { createLedger, type LedgerRow } from './ledger.ts';

function rowOf(partition: number, rows = 2): LedgerRow {
  const rules = {
    version: 1,
    evaluatedAt: 1,
    retentionDays: 90,
    maxEventBytes: 1,
    rawAvro: false,
    schemaIds: [],
    period: 0,
  };
  return {
    source: 'edge_logs',
    topic: 't',
    partition,
    group: 'g',
    entry: {
      incarnation: 0,
      first: 0,
      last: 1,
      rules,
      stored: { rows, deadLetters: 0, minTimestamp: 5 },
      nullValues: 0,
      noRecords: 0,
      gap: 0,
      begin: undefined,
      end: undefined,
      closes: false,
    },
  };
}

/** An engine whose inserts end when they are told to. */
function engine() {
  const inserts: { rows: Rows; bytes: number; end: (error?: Error) => void }[] = [];
  return {
    inserts,
    insertRows: (rows: Rows) =>
      new Promise<void>((resolve, reject) => {
        const bytes = [...rows.pieces].reduce((sum, p) => sum + p.length, 0);
        inserts.push({ rows, bytes, end: (error) => (error === undefined ? resolve() : reject(error)) });
      }),
  };
}

const settled = (): Promise<void> =>
  new Promise((resolve) => {
    setImmediate(resolve);
  });

test('rows that come while an insert runs share the next one, and each waits for its own', async () => {
  const { inserts, insertRows } = engine();
  const ledger = createLedger({ insertRows }, () => Promise.resolve());
  const done: number[] = [];
  const write = async (n: number): Promise<void> => {
    await ledger(rowOf(n));
    done.push(n);
  };
  const writes = [write(0)];
  await settled();
  writes.push(write(1), write(2));
  await settled();
  expect(inserts).toHaveLength(1);
  inserts[0]!.end();
  await settled();
  expect(done).toEqual([0]);
  expect(inserts).toHaveLength(2);
  expect(inserts[1]!.bytes).toBe(2 * inserts[0]!.bytes);
  inserts[1]!.end();
  await Promise.all(writes);
  expect(done).toEqual([0, 1, 2]);
  expect(inserts).toHaveLength(2);
});

test('a row says whether it closes its life, and is written without a token, which may outlive it', async () => {
  for (const closes of [false, true]) {
    const { inserts, insertRows } = engine();
    const row = rowOf(0);
    const written = createLedger({ insertRows })({ ...row, entry: { ...row.entry, closes } });
    await settled();
    inserts[0]!.end();
    await written;
    const { pieces, settings } = inserts[0]!.rows;
    // then comes the timestamp: whether it is none, and 8 bytes
    expect(Buffer.concat([...pieces]).at(-10)).toBe(Number(closes));
    expect(settings).toEqual({ insert_deduplicate: 0 });
  }
});

test('a failed insert fails the rows that shared it, and no others', async () => {
  const { inserts, insertRows } = engine();
  const ledger = createLedger({ insertRows }, () => Promise.resolve());
  const first = ledger(rowOf(0)).catch((error: unknown) => error);
  await settled();
  const second = ledger(rowOf(1));
  inserts[0]!.end(new Error('unavailable'));
  expect(String(await first)).toContain('unavailable');
  await settled();
  inserts[1]!.end();
  await second;
});

test('rows that come within the interval after an insert began share the next one, even when it has ended', async () => {
  const { inserts, insertRows } = engine();
  const intervals: (() => void)[] = [];
  const ledger = createLedger({ insertRows }, () => new Promise((resolve) => intervals.push(resolve)));
  const first = ledger(rowOf(0));
  await settled();
  inserts[0]!.end();
  await first;
  const others = [ledger(rowOf(1)), ledger(rowOf(2))];
  await settled();
  expect(inserts).toHaveLength(1);
  intervals[0]!();
  await settled();
  expect(inserts).toHaveLength(2);
  inserts[1]!.end();
  await Promise.all(others);
});

test('the row of a large batch ends the interval, for the rows that wait too', async () => {
  const { inserts, insertRows } = engine();
  const ledger = createLedger({ insertRows }, () => new Promise(() => {}));
  const first = ledger(rowOf(0));
  await settled();
  inserts[0]!.end();
  await first;
  const others = [ledger(rowOf(1)), ledger(rowOf(2, 999))];
  await settled();
  expect(inserts).toHaveLength(1);
  others.push(ledger(rowOf(3, 1_000)));
  await settled();
  expect(inserts).toHaveLength(2);
  expect(inserts[1]!.bytes).toBe(3 * inserts[0]!.bytes);
  inserts[1]!.end();
  await Promise.all(others);
});
