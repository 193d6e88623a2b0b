import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { select } from '../../../common/clickhouse/clickhouse.ts';
import { createRandom } from '../../../demo/random.ts';
import { createLedger } from '../../../services/ingest/store/ledger.ts';
import type { LedgerEntry } from '../../../services/ingest/delivery/ports.ts';
import { RowBinary } from '../../../services/ingest/evaluate/row-binary.ts';
import type { Event } from '../../../services/ingest/simulation/kafka.ts';
import { createTables, type Row, type Target } from '../../../services/ingest/simulation/tables.ts';
import { openTestClickHouse, type TestClickHouse } from '../../harness/clickhouse.ts';

// What delivery rests on, checked on the engine: an insert commits all parts of its table before those of its views, a
// view's before those of the views behind it; a token keeps out a part that a table remembers, and no later one. The
// simulation's tables do the same:
// random sequences run on both.

const WINDOW = 24;
const TABLES = { raw: 'semantics_raw', rollup1m: 'semantics_1m', rollup1h: 'semantics_1h' } as const;
type Stop = 'nowhere' | 'first view' | 'second view';
const STOPS: Readonly<Record<Stop, number>> = { nowhere: 0, 'first view': 1, 'second view': 2 };

let engine: TestClickHouse;

beforeAll(async () => {
  engine = await openTestClickHouse();
});
afterAll(() => engine.close());

async function makeTables(): Promise<void> {
  const columns = '(day UInt8, period UInt8, n UInt64, stop UInt8)';
  for (const table of Object.values(TABLES))
    await engine.clickhouse.execute({ sql: `DROP TABLE IF EXISTS ${table}_mv` });
  for (const table of Object.values(TABLES))
    await engine.clickhouse.execute({ sql: `DROP TABLE IF EXISTS ${table} SYNC` });
  for (const [target, table] of Object.entries(TABLES)) {
    await engine.clickhouse.execute({
      sql: `CREATE TABLE ${table} ${columns} ENGINE = MergeTree PARTITION BY ${target === 'raw' ? 'day' : 'period'} ORDER BY n SETTINGS non_replicated_deduplication_window = ${WINDOW}`,
    });
  }
  for (const [from, to, stop] of [
    ['raw', 'rollup1m', 1],
    ['rollup1m', 'rollup1h', 2],
  ] as const) {
    await engine.clickhouse.execute({
      sql: `CREATE MATERIALIZED VIEW ${TABLES[to]}_mv TO ${TABLES[to]} AS SELECT * FROM ${TABLES[from]} WHERE throwIf(stop = ${stop}, 'stopped in a view') = 0`,
    });
  }
}

/** Inserts as ingest does: one block of RowBinary under a token. `stop`: where the insert ends with an error. */
async function insert(rows: readonly Row[], token: string, stop: Stop): Promise<void> {
  const out = new RowBinary();
  for (const { event, period } of rows) {
    out.begin();
    out.uint8(event.day);
    out.uint8(period);
    out.int64(event.offset);
    out.uint8(STOPS[stop]);
  }
  const inserting = engine.clickhouse.insertRows({
    table: TABLES.raw,
    columns: ['day', 'period', 'n', 'stop'],
    pieces: out.take(),
    settings: { insert_deduplication_token: token },
  });
  if (stop === 'nowhere') await inserting;
  else await expect(inserting).rejects.toThrow('stopped in a view');
}

async function stored(): Promise<Record<string, number[]>> {
  const found: Record<string, number[]> = {};
  for (const [target, table] of Object.entries(TABLES))
    found[target] = (
      await select<{ n: number }>(engine.clickhouse, `SELECT toUInt32(n) AS n FROM ${table} ORDER BY n`)
    ).map((r) => r.n);
  return found;
}

function rowOf(offset: number, day: number, period: number): Row {
  return { event: { offset, day } as Event, incarnation: 0, batchLast: 0, evaluatedAt: 0, period };
}

describe('a typed insert into a table with a chain of views', () => {
  test('has its raw parts of every day when a view throws, and the same token completes the views', async () => {
    await makeTables();
    const rows = [rowOf(1, 1, 0), rowOf(2, 2, 0), rowOf(3, 3, 1)];
    await insert(rows, 'a', 'first view');
    expect(await stored()).toEqual({ raw: [1, 2, 3], rollup1m: [], rollup1h: [] });
    await insert(rows, 'a', 'second view');
    expect(await stored()).toEqual({ raw: [1, 2, 3], rollup1m: [1, 2, 3], rollup1h: [] });
    await insert(rows, 'a', 'nowhere');
    expect(await stored()).toEqual({ raw: [1, 2, 3], rollup1m: [1, 2, 3], rollup1h: [1, 2, 3] });
  });

  test('takes only the missing rows under the same token in days that are not there; views that have the token leave them out', async () => {
    await makeTables();
    await insert([rowOf(1, 1, 0)], 'a', 'nowhere');
    await insert([rowOf(2, 1, 0), rowOf(3, 2, 0)], 'a', 'nowhere');
    expect(await stored()).toEqual({ raw: [1, 3], rollup1m: [1], rollup1h: [1] });
    await insert([rowOf(2, 1, 0)], 'a:1', 'nowhere');
    expect(await stored()).toEqual({ raw: [1, 2, 3], rollup1m: [1, 2], rollup1h: [1, 2] });
  });
});

test('the ledger takes a row that its table remembers and does not hold, as after a kill between the two', async () => {
  const { clickhouse } = engine;
  const ledger = createLedger(clickhouse, () => Promise.resolve());
  const entry = {
    incarnation: 0,
    first: 0,
    last: 0,
    rules: { evaluatedAt: Date.now(), version: 1, period: 0 } as LedgerEntry['rules'],
    stored: { rows: 1, deadLetters: 0, minTimestamp: undefined },
    nullValues: 0,
    noRecords: 0,
    gap: 0,
    begin: undefined,
    end: undefined,
    closes: false,
  };
  const row = { source: 'edge_logs', topic: 'remembered', partition: 0, group: 'group', entry };
  for (let time = 0; time < 2; time++) {
    await clickhouse.execute({
      sql: "ALTER TABLE batches DELETE WHERE topic = 'remembered'",
      settings: { mutations_sync: 2 },
    });
    await ledger(row);
    const held = await select(clickhouse, "SELECT toUInt32(count()) AS n FROM batches WHERE topic = 'remembered'");
    expect(held, `written ${time + 1} times`).toEqual([{ n: 1 }]);
  }
});

const seed = Number(process.env['SEED'] ?? Date.now() % 1e9);
test(`the simulation's tables hold what the engine holds after random inserts, errors in views, retries and full windows (seed ${seed})`, async () => {
  for (let sequence = 0; sequence < 3; sequence++) {
    await makeTables();
    const random = createRandom(seed, sequence);
    const fake = createTables({ count: () => {}, trace: () => {} }, () => {}, WINDOW);
    let next = 0;
    const sent: { token: string; rows: Row[] }[] = [];
    for (let step = 0; step < 40; step++) {
      const isRetry = sent.length > 0 && random.chance(0.4);
      const before = isRetry ? sent[sent.length - 1 - random.below(Math.min(sent.length, 12))]! : undefined;
      const rows =
        before?.rows.filter(() => random.chance(0.8)) ??
        Array.from({ length: 1 + random.below(6) }, () => rowOf(next++, random.below(4), random.below(2)));
      const token = before?.token ?? `${sequence}:${step}`;
      if (before === undefined) sent.push({ token, rows });
      if (rows.length === 0) continue;
      const stop: Stop = random.chance(0.2) ? 'first view' : random.chance(0.2) ? 'second view' : 'nowhere';
      await insert(rows, token, stop);
      const last: Target[] =
        stop === 'first view'
          ? ['raw']
          : stop === 'second view'
            ? ['raw', 'rollup1m']
            : ['raw', 'rollup1m', 'rollup1h'];
      for (const part of fake.partsOf(rows, token)) if (last.includes(part.target)) fake.writePart(part);
      const held = Object.fromEntries(
        (Object.keys(TABLES) as Target[]).map((t) => [
          t,
          fake
            .rows(t)
            .map((r) => r.event.offset)
            .toSorted((a, b) => a - b),
        ]),
      );
      expect(await stored(), `sequence ${sequence}, step ${step}: ${token} ${stop}`).toEqual(held);
    }
  }
});
