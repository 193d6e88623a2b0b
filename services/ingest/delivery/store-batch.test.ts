import { describe, expect, test } from 'vitest';
import type { Record } from '../evaluate/record.ts';
import type { Batch, Ended, OrphanRows, Stored } from './ports.ts';
import { foundOf, storeBatch, type Progress } from './store-batch.ts';

const RULES = {
  version: 1,
  evaluatedAt: 500,
  retentionDays: 90,
  maxEventBytes: 1,
  rawAvro: false,
  schemaIds: [],
  period: 0,
};

function batchOf(offsets: readonly number[]): Batch {
  const records = offsets.map((offset): Record => ({
    offset,
    time: 1,
    key: null,
    value: Buffer.from('v'),
    headers: [],
  }));
  return { incarnation: 0, first: 0, last: offsets.at(-1) ?? 0, rules: RULES, records };
}

interface Setup {
  readonly there?: readonly number[];
  /** what an insert of these offsets leaves, by attempt; all by default */
  readonly leaves?: (offsets: number[], attempt: number) => readonly number[];
  readonly unfinished?: readonly number[];
  readonly mayBeThere?: boolean;
  readonly fence?: () => Ended | undefined;
}

async function run(
  offsets: readonly number[],
  { there = [], leaves = (all) => all, unfinished = [], mayBeThere = true, fence = () => undefined }: Setup,
) {
  const did: string[] = [];
  const stored = new Set(there);
  const progress: Progress = { mayBeThere, needsRepair: false };
  const batch = batchOf(offsets);
  const counts = (): Stored => ({ rows: stored.size, deadLetters: 0, minTimestamp: undefined });
  const result = await storeBatch(
    {
      endRunning: async () => {
        did.push('end');
      },
      found: async () => ({ offsets: new Set(stored), stored: counts() }),
      async insert({ records }, without, attempt) {
        const missing = records.map((r) => r.offset).filter((o) => !without.has(o));
        did.push(`insert ${missing.join(',')} under ${attempt}`);
        for (const offset of leaves(missing, attempt)) stored.add(offset);
        return unfinished.includes(attempt)
          ? 'unfinished'
          : { rows: missing.length, deadLetters: 0, minTimestamp: undefined };
      },
      requestRepair: async () => {
        did.push('repair');
      },
    },
    batch,
    progress,
    async () => fence(),
  );
  return { did, result, progress };
}

describe('a batch is stored once', () => {
  test('a new one by one insert, without a look', async () => {
    const { did, result } = await run([0, 1], { mayBeThere: false });
    expect(did).toEqual(['insert 0,1 under 0']);
    expect(result).toMatchObject({ rows: 2 });
  });

  test('an open one of which nothing is there: the same token, and no repair', async () => {
    expect((await run([0, 1], {})).did).toEqual(['end', 'insert 0,1 under 0', 'end']);
  });

  test('one that is there in part: the missing rows under its token, and the rollups are rebuilt', async () => {
    const { did, result } = await run([0, 1, 2], { there: [1] });
    expect(did).toEqual(['end', 'insert 0,2 under 0', 'end', 'repair']);
    expect(result).toMatchObject({ rows: 3 });
  });

  test('one that is whole in raw may lack its views: only a repair', async () => {
    expect((await run([0, 1], { there: [0, 1] })).did).toEqual(['end', 'repair']);
  });

  test('one whose token is noted without its part: under a second token, and the rollups are rebuilt', async () => {
    const { did } = await run([0, 1], { leaves: (all, attempt) => (attempt < 1 ? [] : all) });
    expect(did).toEqual(['end', 'insert 0,1 under 0', 'end', 'insert 0,1 under 1', 'end', 'repair']);
  });

  test('one whose token is noted without its part: under a second token, then a third, and a repair', async () => {
    const { did } = await run([0, 1], { leaves: (all, attempt) => (attempt < 2 ? [] : all) });
    expect(did).toEqual([
      'end',
      'insert 0,1 under 0',
      'end',
      'insert 0,1 under 1',
      'end',
      'insert 0,1 under 2',
      'end',
      'repair',
    ]);
  });

  test.each([
    [0, true],
    [0, false],
  ])(
    'one in whose view an error was thrown (attempt %i, open %s) is looked at and its rollups are rebuilt',
    async (attempt, mayBeThere) => {
      const { did } = await run([0, 1], { unfinished: [attempt], mayBeThere });
      expect(did.at(-1)).toBe('repair');
      expect(did.filter((d) => d.startsWith('insert'))).toHaveLength(1);
    },
  );

  test('one without a value needs no insert, unless rows of it are there', async () => {
    expect((await run([], { mayBeThere: false })).did).toEqual([]);
    const { did, result } = await run([], { there: [4] });
    expect(did).toEqual(['end', 'repair']);
    expect(result).toMatchObject({ rows: 1 });
  });

  test('not by a lane that lost its partition', async () => {
    const { did, result } = await run([0], { fence: () => 'over' });
    expect({ did, result }).toEqual({ did: [], result: 'over' });
  });
});

test('a replayed dead letter counts as the letter; rows of other batches and lives do not count', () => {
  const rows = (rest: Partial<OrphanRows>): OrphanRows => ({
    incarnation: 0,
    last: 9,
    evaluatedAt: 500,
    offsets: [],
    deadOffsets: [],
    minTimestamp: undefined,
    ...rest,
  });
  const found = foundOf(
    [
      rows({ offsets: [5, 6], deadOffsets: [7], minTimestamp: 30 }),
      rows({ evaluatedAt: 900, offsets: [7], minTimestamp: 20 }),
      rows({ last: 12, offsets: [10] }),
      rows({ incarnation: 1, offsets: [8] }),
      rows({ offsets: [2] }),
    ],
    { incarnation: 0, first: 5, last: 9 },
  );
  expect(found.offsets).toEqual(new Set([5, 6, 7]));
  expect(found.stored).toEqual({ rows: 2, deadLetters: 1, minTimestamp: 20 });
});
