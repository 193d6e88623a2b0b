import { afterAll, beforeAll, expect, test } from 'vitest';
import { statements } from '../../../services/ingest/store/statements.ts';
import type { RecordMark } from '../../../services/ingest/delivery/ports.ts';
import { openTestClickHouse, type TestClickHouse } from '../../harness/clickhouse.ts';
import { openTestStore } from '../../harness/ingest-store.ts';

// Guarantee: what a takeover reads of the ledger's marks is bounded, however long the ledger is.

const BATCHES = 200_000;
const AT = Date.UTC(2026, 2, 1);

let world: TestClickHouse;

beforeAll(async () => {
  world = await openTestClickHouse();
  // of each ten batches one has no record: its end is the last record of the batch before; the last 100 are written twice
  for (const [from, count, incarnation, partition] of [
    [0, BATCHES, 0, 0],
    [BATCHES - 100, 100, 0, 0],
    [0, 1_000, 1, 0],
    [0, 1_000, 0, 1],
  ] as const)
    await world.clickhouse.execute({
      sql: `INSERT INTO batches (topic, incarnation, partition, first, last, begin_offset, begin_record_time, begin_checksum,
          end_offset, end_record_time, end_checksum)
        SELECT 'edge_logs', {incarnation:UInt32}, {partition:UInt32}, 10 * number, 10 * number + 9,
          if(number % 10 = 9, NULL, 10 * number), if(number % 10 = 9, 0, {at:Int64} + number), if(number % 10 = 9, NULL, 1),
          10 * (number - (number % 10 = 9)) + 5, {at:Int64} + number - (number % 10 = 9), 2
        FROM numbers({from:UInt64}, {count:UInt64})`,
      params: { incarnation, partition, at: AT, from, count },
    });
});
afterAll(() => world.close());

/** newest first */
const MARKS: readonly RecordMark[] = Array.from({ length: BATCHES }, (_, i) =>
  i % 10 === 9
    ? []
    : [
        { offset: 10 * i, time: AT + i, checksum: 1 },
        { offset: 10 * i + 5, time: AT + i, checksum: 2 },
      ],
)
  .flat()
  .toReversed();

test.each([
  ['the end', Number.MAX_SAFE_INTEGER, 0],
  ['a record', MARKS[900]!.offset, 901],
  ['between two records', MARKS[900]!.offset + 1, 900],
  ['near the start', MARKS.at(-2)!.offset + 1, MARKS.length - 2],
  ['the start', 0, MARKS.length],
])('the newest marks before an offset are a page: before %s', async (_, before, index) => {
  const marks = await openTestStore(world.clickhouse, { source: 'edge_logs' }).marks(0, before);
  expect(marks.length).toBeLessThanOrEqual(1_000);
  expect(marks.length).toBeGreaterThanOrEqual(Math.min(MARKS.length - index, 500));
  expect(marks).toEqual(MARKS.slice(index, index + marks.length));
});

test('the next page begins where one ends', async () => {
  const store = openTestStore(world.clickhouse, { source: 'edge_logs' });
  const first = await store.marks(0, Number.MAX_SAFE_INTEGER);
  const second = await store.marks(0, first.at(-1)!.offset);
  expect([...first, ...second]).toEqual(MARKS.slice(0, first.length + second.length));
});

test('a page reads a small part of the ledger', async () => {
  for (const before of [Number.MAX_SAFE_INTEGER, 5 * BATCHES, 100]) {
    const params = { topic: 'edge_logs', partition: 0, incarnation: 0, before };
    const { readRows } = await world.clickhouse.read({ sql: statements.ledgerMarks, params, format: 'JSON' });
    expect(readRows).toBeLessThan(BATCHES / 4);
  }
});
