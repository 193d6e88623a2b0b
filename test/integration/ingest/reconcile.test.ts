import { afterAll, beforeAll, expect, test } from 'vitest';
import { quote } from '../../../common/clickhouse/sql.ts';
import { reconcile, type Reconciliation } from '../../../services/ingest/operate/reconcile.ts';
import { openTestClickHouse, type TestClickHouse } from '../../harness/clickhouse.ts';

// Guarantee: what the tables and the ledger do not agree about is found, whichever of them is wrong, with the first
// range of its partition.

interface Batch {
  readonly first: number;
  readonly last: number;
  readonly stored?: number;
  readonly dead?: number;
  readonly nulls?: number;
  readonly noRecords?: number;
  readonly gap?: number;
  /** of its oldest row */
  readonly since?: string;
}

/** One partition: its ledger, and the offsets of rows and dead letters by the end of their batch. */
interface Partition {
  readonly ledger: readonly Batch[];
  readonly rows: { readonly [batchLast: number]: readonly number[] };
  readonly dead: { readonly [batchLast: number]: readonly number[] };
  readonly replayed?: readonly number[];
  /** edge_logs unless said otherwise */
  readonly source?: string;
  /** of the replayed events; absent = not known */
  readonly replayedSince?: string;
  /** when its messages were evaluated; absent = today */
  readonly evaluatedAt?: string;
}

const daysAgo = (days: number): string =>
  new Date(Date.now() - days * 86_400_000).toISOString().replace('T', ' ').slice(0, 19);
/** within the retention of 90 days, but of auth_logs all before 20 days ago is gone */
const [DROPPED, KEPT] = [daysAgo(30), daysAgo(10)];
/** ledger and dead letters are kept for 400 days, and go part by part */
const EXPIRED = daysAgo(401);

const first: Batch = { first: 0, last: 4, stored: 4, dead: 1 };
const second: Batch = { first: 5, last: 9, stored: 2, nulls: 1, noRecords: 1, gap: 1 };
const sound: Partition = { ledger: [first, second], rows: { 4: [0, 1, 2, 3], 9: [8, 9] }, dead: { 4: [4] } };
const alone = { ledger: [second], rows: { 9: [8, 9] }, dead: {} };

const partitions: { readonly [name: string]: { readonly partition: Partition; readonly fault?: string } } = {
  sound: { partition: sound },
  'written twice': { partition: { ...sound, ledger: [first, first, second] } },
  replayed: { partition: { ...sound, rows: { 4: [0, 1, 2, 3, 4], 9: [8, 9] }, replayed: [4] } },
  'past retention': {
    partition: { ...sound, ledger: [{ ...first, since: '2020-01-01 00:00:00' }, second], rows: { 9: [8, 9] } },
  },
  'a replayed row is past retention': {
    partition: {
      ledger: [{ first: 0, last: 4, stored: 3, dead: 2 }],
      rows: { 4: [0, 1, 2, 4] },
      dead: { 4: [3, 4] },
      replayed: [3, 4],
      replayedSince: '2020-01-01 00:00:00',
    },
  },
  'past a retention that was shorter': {
    partition: { ...sound, ledger: [{ ...first, since: DROPPED }, second], rows: { 9: [8, 9] }, source: 'auth_logs' },
  },
  'a replayed row is past a retention that was shorter': {
    partition: {
      ledger: [{ first: 0, last: 0, dead: 1 }],
      rows: {},
      dead: { 0: [0] },
      replayed: [0],
      replayedSince: DROPPED,
      source: 'auth_logs',
    },
  },
  'dropped of another source only': {
    partition: { ...sound, ledger: [{ ...first, since: DROPPED }, second], rows: { 9: [8, 9] } },
    fault: 'offsets 0 to 4: rows differ from the ledger',
  },
  'a replayed row is missing': {
    partition: { ...sound, replayed: [4] },
    fault: 'offsets 0 to 4: rows differ from the ledger',
  },
  'a replayed row of these days is missing': {
    partition: { ...sound, replayed: [4], replayedSince: KEPT, source: 'auth_logs' },
    fault: 'offsets 0 to 4: rows differ from the ledger',
  },
  'a row is missing': {
    partition: { ...sound, rows: { 4: [0, 1, 3], 9: [8, 9] } },
    fault: 'offsets 0 to 4: rows differ from the ledger',
  },
  'a row too many': {
    partition: { ...sound, rows: { 4: [0, 1, 2, 3], 9: [7, 8, 9] } },
    fault: 'offsets 5 to 9: rows differ from the ledger',
  },
  'an offset twice': {
    partition: { ...sound, rows: { 4: [0, 1, 1, 3], 9: [8, 9] } },
    fault: 'offsets 0 to 4: an offset is stored twice',
  },
  'a dead letter is missing': {
    partition: { ...sound, dead: {} },
    fault: 'offsets 0 to 4: dead letters differ from the ledger',
  },
  'a dead letter twice': {
    partition: { ...sound, dead: { 4: [4, 4] } },
    fault: 'offsets 0 to 4: dead letters differ from the ledger',
  },
  'two ranges': {
    partition: { ...sound, rows: {} },
    fault: 'offsets 0 to 4: rows differ from the ledger (2 ranges in all)',
  },
  'a hole': {
    partition: { ...sound, ledger: [first, { ...second, first: 6, gap: 0 }] },
    fault: 'offsets 6 to 9: offsets are missing before it',
  },
  'an overlap': {
    partition: { ...sound, ledger: [first, { ...second, first: 4, gap: 2 }] },
    fault: 'offsets 4 to 9: offsets are taken twice',
  },
  'an empty range': {
    partition: { ledger: [{ first: 5, last: 4 }], rows: {}, dead: {} },
    fault: 'offsets 5 to 4: range is empty',
  },
  'a sum': {
    partition: { ...alone, ledger: [{ ...second, nulls: 2 }] },
    fault: 'offsets 5 to 9: the ledger row does not add up',
  },
  'its dead letters have expired before their ledger row': {
    partition: { ...sound, dead: {}, evaluatedAt: EXPIRED },
  },
  'its ledger row has expired before its rows': {
    partition: { ...sound, ledger: [second], dead: {}, evaluatedAt: EXPIRED },
  },
  'a ledger row too few of these days': {
    partition: { ...sound, ledger: [second], dead: {}, evaluatedAt: daysAgo(398) },
    fault: 'offsets 0 to 3: 4 rows belong to no batch of the ledger',
  },
  'a hole in what has expired': {
    partition: { ...sound, ledger: [first, { ...second, first: 6, gap: 0 }], evaluatedAt: EXPIRED },
    fault: 'offsets 6 to 9: offsets are missing before it',
  },
  'no batch': {
    partition: { ...alone, rows: { 9: [8, 9], 14: [10, 12] }, dead: { 14: [14] } },
    fault: 'offsets 10 to 14: 3 rows belong to no batch of the ledger',
  },
};
const cases = Object.entries(partitions).map(([name, of], partition) => ({ name, partition, of }));

let engine: TestClickHouse;
let result: Reconciliation;

beforeAll(async () => {
  engine = await openTestClickHouse();
  const today = daysAgo(0);
  const insert = async (into: string, rows: readonly (readonly (string | number | null)[])[]): Promise<void> => {
    await engine.clickhouse.execute({
      sql: `INSERT INTO ${into} VALUES ${rows.map((row) => `(${row.map((v) => (typeof v === 'string' ? quote(v) : String(v))).join(', ')})`).join(', ')}`,
      settings: { optimize_on_insert: 0 },
    });
  };
  const placed = (of: Partition['rows'], partition: number, evaluatedAt: string = today): (string | number)[][] =>
    Object.entries(of).flatMap(([last, offsets]) =>
      offsets.map((offset) => ['topic', partition, offset, Number(last), evaluatedAt]),
    );
  const coordinates = 'kafka_topic, kafka_partition, kafka_offset, batch_last, evaluated_at';
  await insert(
    'batches (topic, partition, first, last, source, stored, dead_lettered, null_values, no_records, gap, evaluated_at, written_at, min_timestamp)',
    cases.flatMap(({ partition, of }) =>
      of.partition.ledger.map(
        ({ first: from, last, stored = 0, dead = 0, nulls = 0, noRecords = 0, gap = 0, since = null }) => [
          'topic',
          partition,
          from,
          last,
          of.partition.source ?? 'edge_logs',
          stored,
          dead,
          nulls,
          noRecords,
          gap,
          of.partition.evaluatedAt ?? today,
          of.partition.evaluatedAt ?? today,
          since,
        ],
      ),
    ),
  );
  await insert(
    `edge_logs (${coordinates}, timestamp, period)`,
    cases.flatMap(({ partition, of: { partition: of } }) =>
      placed(of.rows, partition, of.evaluatedAt).map((row) => [...row, today, of.evaluatedAt ?? today]),
    ),
  );
  await insert(
    `dead_letters (${coordinates}, source, inserted_at)`,
    cases.flatMap(({ partition, of }) =>
      placed(of.partition.dead, partition, of.partition.evaluatedAt).map((row) => [
        ...row,
        of.partition.source ?? 'edge_logs',
        of.partition.evaluatedAt ?? today,
      ]),
    ),
  );
  await insert(
    'dead_letter_replays (kafka_topic, kafka_partition, kafka_offset, done, evaluated_at, replayed_at, timestamp)',
    cases.flatMap(({ partition, of }) =>
      (of.partition.replayed ?? []).map((offset) => [
        'topic',
        partition,
        offset,
        1,
        today,
        today,
        of.partition.replayedSince ?? null,
      ]),
    ),
  );
  await insert('expired_days (source, before)', [
    ['auth_logs', daysAgo(40)],
    ['auth_logs', daysAgo(20)],
  ]);
  result = await reconcile(engine.clickhouse, 90, 0);
});
afterAll(async () => {
  await engine.close();
});

test.each(cases)('$name', ({ partition, of: { fault } }) => {
  const found = result.faults
    .filter((text) => text.startsWith(`topic incarnation 0 partition ${partition}: `))
    .map((text) => text.replace(/^.*? partition \d+: /, ''));
  expect(found).toEqual(fault === undefined ? [] : [fault]);
});

test('a partition that is on two shards is a fault', async () => {
  const { clickhouse } = engine;
  const shards = ['s1', 's2'].map((shard) => ({ ...clickhouse, shard }));
  const { ok, faults } = await reconcile({ ...clickhouse, shards }, 90, 0);
  expect({ ok, faults }).toEqual({
    ok: false,
    faults: expect.arrayContaining(['topic incarnation 0 partition 0: is on several shards']) as string[],
  });
});

test('it does not hold, and its sums are those of the ledger', () => {
  expect(result.ok).toBe(false);
  const account = (name: string): object =>
    result.partitions.find((p) => p.partition === cases.findIndex((c) => c.name === name))!;
  expect(account('sound')).toEqual({
    topic: 'topic',
    incarnation: 0,
    partition: 0,
    first: 0,
    last: 9,
    consumed: 10,
    stored: 6,
    dead_lettered: 1,
    skipped: 3,
    gap: 1,
    replayed: 0,
  });
  expect(account('written twice')).toMatchObject({ consumed: 10, stored: 6 });
  expect(account('replayed')).toMatchObject({ consumed: 10, stored: 7, dead_lettered: 0, replayed: 1 });
});
