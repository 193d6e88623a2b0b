import { expect, test } from 'vitest';
import type { ClickHouse, Rows } from '../../../common/clickhouse/clickhouse.ts';
import { refusal } from '../../../common/clickhouse/errors.ts';
import { createRegistry } from '../../../common/metrics.ts';
import { openTestStore, type TestStore } from '../../../test/harness/ingest-store.ts';
import { checksum, type Record } from '../evaluate/record.ts';

const AT = Date.UTC(2026, 2, 1);

function record(offset: number, value: string | null): Record {
  return { offset, time: AT, key: null, value: value === null ? null : Buffer.from(value), headers: [] };
}
const event = (id: number): string => `{"id":"event ${id}","project":"p","timestamp":${AT * 1000}}`;
const BAD = 'no event';

interface Insert {
  readonly table: string;
  readonly token: unknown;
  readonly content: string;
}

/** Stores on an engine that keeps nothing, of two groups that share it. */
function stores({ stored = [], fails }: { stored?: readonly object[]; fails?: (table: string) => Error | undefined }): {
  readonly inserts: Insert[];
  readonly ours: TestStore;
  readonly theirs: TestStore;
} {
  const inserts: Insert[] = [];
  const clickhouse = {
    insertRows: async ({ table, pieces, settings }: Rows) => {
      const content = Buffer.concat([...pieces]).toString('latin1');
      inserts.push({ table, token: settings?.['insert_deduplication_token'], content });
      const error = fails?.(table);
      if (error !== undefined) throw error;
    },
    read: async () => ({
      body: Buffer.from(stored.map((row) => JSON.stringify(row)).join('\n')),
      readRows: undefined,
      readBytes: undefined,
    }),
  } as unknown as ClickHouse;
  const open = (group: string): TestStore => openTestStore(clickhouse, { source: 'auth_logs', group });
  return { inserts, ours: open('ours'), theirs: open('theirs') };
}

function batchOf(store: TestStore, records: readonly Record[]) {
  const [first, last] = [records[0]!.offset, records.at(-1)!.offset];
  return { incarnation: 0, first, last, rules: store.rulesAt(AT), records };
}

test('claims of an epoch have one token, whoever makes them: of two the first one counts', async () => {
  const { inserts, ours, theirs } = stores({});
  await ours.claim(3);
  await theirs.claim(3);
  await ours.claim(4);
  expect(inserts.map(({ token }) => token)).toEqual([
    'owner:auth_logs:0:3',
    'owner:auth_logs:0:3',
    'owner:auth_logs:0:4',
  ]);
});

test('dead letters are inserted first, then rows, each under a token of its batch, without what is stored already', async () => {
  const { inserts, ours } = stores({});
  const batch = batchOf(ours, [record(5, event(5)), record(6, BAD), record(7, event(7)), record(8, `${BAD} 8`)]);
  expect(await ours.insert(batch, new Set([5, 8]), 0, async () => undefined)).toMatchObject({
    rows: 1,
    deadLetters: 1,
  });
  expect(inserts.map(({ table, token }) => [table, token])).toEqual([
    ['dead_letters', `auth_logs:0:0:8:${AT}:dead`],
    ['auth_logs', `auth_logs:0:0:8:${AT}`],
  ]);
  expect(
    inserts.map(({ content }) => [BAD, `${BAD} 8`, 'event 5', 'event 7'].map((text) => content.includes(text))),
  ).toEqual([
    [true, false, false, false],
    [false, false, false, true],
  ]);
});

test('a batch needs the schemas that it was announced with only for messages that are not stored', async () => {
  const { inserts, ours } = stores({});
  const avro = { ...record(6, null), value: Buffer.from([0, 0, 0, 0, 7, 0]) };
  const batch = batchOf(ours, [record(5, event(5)), avro]);
  const announced = { ...batch, rules: { ...batch.rules, schemaIds: [7] } };
  const insert = (without: number[]) => ours.insert(announced, new Set(without), 0, async () => undefined);
  await expect(insert([])).rejects.toMatchObject({ kind: 'retry' });
  expect(inserts).toEqual([]);
  expect(await insert([6])).toMatchObject({ rows: 1, deadLetters: 0 });
});

test('neither a dead letter nor a row is inserted by a lane that may not write', async () => {
  for (const value of [BAD, event(0)]) {
    const { inserts, ours } = stores({});
    expect(await ours.insert(batchOf(ours, [record(0, value)]), new Set(), 0, async () => 'over')).toBe('over');
    expect(inserts).toEqual([]);
  }
});

test('an insert whose view failed is unfinished, because its rows are there; any other error is thrown', async () => {
  const insertWith = (message: string) => {
    const { ours } = stores({ fails: () => refusal(241, message) });
    return ours.insert(batchOf(ours, [record(0, event(0))]), new Set(), 0, async () => undefined);
  };
  expect(await insertWith('Memory limit: while pushing to view logs.api_requests_v1_mv')).toBe('unfinished');
  await expect(insertWith('Memory limit')).rejects.toThrow('Memory limit');
});

test('a row whose message would be a dead letter today is the same log', async () => {
  const row = record(0, BAD);
  const { ours } = stores({ stored: [{ offset: 0, checksum: checksum(row), dead_time: null }] });
  expect(await ours.compare(0, [row])).toEqual(['same']);
});

test('a message whose schema is gone proves no other log against a row, but does against a dead letter', async () => {
  const avro = { ...record(0, null), value: Buffer.from([0, 0, 0, 0, 7, 0]) };
  const row = { offset: 0, checksum: checksum(record(0, event(0))), dead_time: null };
  const comparedWith = (...stored: object[]): unknown => stores({ stored }).ours.compare(0, [avro]);
  expect(await comparedWith(row)).toEqual(['nothing']);
  // a letter was stored as it stood in Kafka, and one that was replayed is a row too
  const letter = { offset: 0, checksum: checksum(avro), dead_time: AT };
  expect(await comparedWith(row, letter)).toEqual(['same']);
  expect(await comparedWith(row, { ...letter, checksum: 1 })).toEqual(['another']);
});

test('a log differs where a value, its time as a dead letter, or its absence is not what is stored', async () => {
  const [row, letter] = [record(0, event(0)), record(1, BAD)];
  const stored = [
    { offset: 0, checksum: checksum(row), dead_time: null },
    { offset: 1, checksum: checksum(letter), dead_time: AT },
  ];
  const { ours } = stores({ stored });
  const differsAt = async (...records: Record[]): Promise<unknown> => {
    const storedAs = await ours.compare(0, records);
    return records.find((_, i) => storedAs[i] !== undefined && storedAs[i] !== 'same')?.offset;
  };
  expect(await differsAt(row, letter, record(2, null))).toBe(undefined);
  expect(await differsAt(row, record(1, `${BAD}!`))).toBe(1);
  expect(await differsAt(row, { ...letter, time: AT + 1 })).toBe(1);
  expect(await differsAt(record(0, null), letter)).toBe(0);
  expect(await differsAt(row, letter, record(2, event(2)))).toBe(2);
  expect(await differsAt({ ...row, time: AT + 1 }, letter)).toBe(undefined);
  expect(await differsAt()).toBe(undefined);
  expect(
    await ours.compare(0, [row, record(1, `${BAD}!`), record(2, null), record(3, event(3)), record(0, null)]),
  ).toEqual(['same', 'another', undefined, 'nothing', 'another']);
});

test('offsets that are gone from Kafka are counted once the ledger has them', async () => {
  const registry = createRegistry();
  let refused = true;
  const insertRows = async (): Promise<void> => {
    if (refused) throw refusal(243, 'Not enough space');
  };
  const store = openTestStore({ insertRows } as unknown as ClickHouse, { source: 'auth_logs', registry });
  const { records: _, ...batch } = batchOf(store, [record(7, event(7))]);
  const entry = {
    ...batch,
    first: 2,
    stored: { rows: 1, deadLetters: 0, minTimestamp: undefined },
    nullValues: 0,
    noRecords: 0,
    begin: undefined,
    end: undefined,
    closes: false,
  };
  const gone = async (): Promise<unknown> =>
    (await registry.getSingleMetric('sluice_ingest_gone_offsets_total')!.get()).values;
  await expect(store.writeLedger({ ...entry, gap: 5 })).rejects.toThrow('Not enough space');
  refused = false;
  await store.writeLedger({ ...entry, first: 7, gap: 0 });
  expect(await gone()).toEqual([]);
  await store.writeLedger({ ...entry, gap: 5 });
  expect(await gone()).toEqual([{ labels: { topic: 'auth_logs' }, value: 5 }]);
});

test('events are counted with the ledger row of their batch, whichever attempt has stored them', async () => {
  const registry = createRegistry();
  const clickhouse = { insertRows: async () => {} } as unknown as ClickHouse;
  const store = openTestStore(clickhouse, { source: 'auth_logs', registry });
  const counted = async (): Promise<string | undefined> =>
    /^sluice_ingest_events_total\{source="auth_logs"\} (\d+)$/m.exec(await registry.metrics())?.[1];
  const { incarnation, first, last, rules, records } = batchOf(store, [record(0, event(0)), record(1, BAD)]);
  const batch = { incarnation, first, last, rules, records };
  const stored = await store.insert(batch, new Set(), 0, async () => undefined);
  expect([stored, await counted()]).toEqual([expect.objectContaining({ rows: 1, deadLetters: 1 }), undefined]);
  await store.writeLedger({
    incarnation,
    first,
    last,
    rules,
    stored: { rows: 1, deadLetters: 1, minTimestamp: undefined },
    nullValues: 0,
    noRecords: 0,
    gap: 0,
    begin: undefined,
    end: undefined,
    closes: false,
  });
  expect(await counted()).toBe('2');
});
