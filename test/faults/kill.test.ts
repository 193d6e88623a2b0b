import { afterEach, describe, expect, test } from 'vitest';
import { rows } from '../../common/clickhouse/clickhouse.ts';
import { temporaryFolder } from '../harness/clickhouse.ts';
import { endIngestChildren, logged, startIngestChild, type At, type IngestChild } from './ingest-child.ts';
import { createWorld, type World } from './ledger.ts';

// Guarantee: kill -9 of the ingest process at any step of a batch, on the embedded engine, neither loses nor doubles a
// message, also when the process that recovers is killed again. Afterwards every acknowledged message is once in its
// raw table or in dead_letters, and once in every rollup. A batch that was announced keeps its boundaries: no row is
// ever found that no intent explains.

const SESSION_TIMEOUT_MS = 2_000;
/** On a loaded machine the engine may go on before the kill strikes, and leave another state. */
const TRIES = 5;

afterEach(endIngestChildren);

function start(world: World, dataDir: string, at?: At, look?: string): IngestChild {
  return startIngestChild({
    env: { ...world.env, DATA_DIR: dataDir },
    sessionTimeoutMs: SESSION_TIMEOUT_MS,
    at: at === undefined ? undefined : { match: '^(edge_logs|batches)\\b', ...at },
    look,
  });
}

interface Killed {
  readonly child: IngestChild;
  /** of the insert that it was killed at; undefined at any other step */
  readonly token: string | undefined;
  /** it was killed at an insert of a batch that it recovered */
  readonly isRecovery: boolean;
}

async function killAt(world: World, dataDir: string, at: At, look?: string): Promise<Killed> {
  const child = start(world, dataDir, at, look);
  expect(await child.exited, `${JSON.stringify(at)}: ${child.log().slice(-1_000)}`).toEqual({
    code: null,
    signal: 'SIGKILL',
  });
  const [struck] = logged(child, 'struck') as { about: string }[];
  const token = / (\S+?)(:dead)?$/.exec(struck!.about)?.[1];
  const recovered = logged(child, 'batch_recovered') as { topic: string; partition: number; last: number }[];
  const isRecovery = recovered.some((b) => token?.startsWith(`${b.topic}:0:${b.partition}:${b.last}:`) === true);
  return { child, token, isRecovery };
}

async function expectExactWithoutOrphans(world: World, last: IngestChild, ...killed: Killed[]): Promise<void> {
  await world.finished(last.reader);
  await world.expectExact(last.reader);
  for (const child of [...killed.map((k) => k.child), last]) expect(logged(child, 'orphan_rows_found')).toEqual([]);
  expect(await last.stop()).toMatchObject({ code: 0 });
}

/** Killed in a row, then finished and counted. 'same batch': of the kill before, which this process recovers. */
const places: readonly (readonly [name: string, kills: readonly (At & { readonly of?: 'same batch' })[]])[] = [
  [
    'around the intent and the dead letters, also during recovery',
    [
      { step: 'before_intent' },
      { step: 'after_intent' },
      { step: 'before_insert', match: '^dead_letters edge_logs' },
      {
        step: 'in_insert',
        of: 'same batch',
        match: '^dead_letters ',
        whenPartOf: 'dead_letters',
      },
      { step: 'before_insert', of: 'same batch', match: '^edge_logs ' },
    ],
  ],
  [
    'between insert, ledger and commit',
    [
      { step: 'after_insert' },
      { step: 'in_ledger', delayMs: 1 },
      { step: 'after_ledger' },
      { step: 'before_commit' },
      { step: 'after_commit' },
    ],
  ],
];

/** What a kill in an insert into edge_logs left of its batch, by when it strikes. */
const inInsert = {
  nothing: {},
  'raw and view': { whenPartOf: 'api_requests_v1' },
  raw: { whenPartOf: 'edge_logs' },
} as const satisfies Record<string, Partial<At>>;
type Left = keyof typeof inInsert;

/** For the next process, before it recovers: the batch's rows, what the view owes for them and others, and has. */
function lookAt({ token }: Killed): string {
  const last = token!.split(':')[3]!;
  return `
    SELECT toUInt32(countIf(batch_last = ${last})) AS raw, toUInt32(sumIf(owed, batch_last != ${last})) AS others,
      toUInt32(sum(owed)) AS due, (SELECT toUInt32(sum(requests)) FROM api_requests WHERE width = 0) AS counted,
      (SELECT toUInt32(count()) FROM batches WHERE last = ${last}) AS ledger
    FROM (SELECT batch_last, if(refs_overflow, 1, length(refs)) AS owed FROM edge_logs)`;
}

/** Undefined: anything else, for instance a part of the view, or the ledger too. */
function leftOf(found: Record<string, unknown> | undefined): Left | undefined {
  const { raw, others, due, counted, ledger } = found as Record<string, number>;
  if (ledger !== 0) return undefined;
  if (raw === 0) return counted === others ? 'nothing' : undefined;
  return counted === others ? 'raw' : counted === due ? 'raw and view' : undefined;
}

describe('kill -9', () => {
  test.each(places)('%s', async (_, kills) => {
    const folder = temporaryFolder();
    try {
      const world = await createWorld();
      const killed: Killed[] = [];
      for (const { of, ...at } of kills) {
        await world.produce({ edge_logs: 600, function_edge_logs: 150, postgres_logs: 50 });
        const token = of === undefined ? '' : killed.at(-1)!.token;
        killed.push(await killAt(world, folder.path, of === undefined ? at : { ...at, match: `${at.match}${token}` }));
      }
      const isAnother = (i: number): boolean => killed[i]!.token !== killed[i - 1]!.token || !killed[i]!.isRecovery;
      expect(kills.filter(({ of }, i) => of !== undefined && isAnother(i))).toEqual([]);
      await expectExactWithoutOrphans(world, start(world, folder.path), ...killed);
    } finally {
      folder.remove();
    }
  });

  test(
    'in the insert: before raw, between raw and its view, after its view, also during recovery',
    { timeout: 300_000 },
    async () => {
      const folder = temporaryFolder();
      try {
        // of one partition: the first insert of a process is that of the batch which it recovers
        const world = await createWorld({ partitions: 1 });
        const missing = new Set(Object.keys(inInsert) as Left[]);
        const recovering: Left[] = [];
        for (let tries = 0; missing.size > 0 || recovering.length === 0; tries++) {
          expect(tries, `never left: ${[...missing].join(', ')}; recovering: ${recovering.length}`).toBeLessThan(TRIES);
          const killed: Killed[] = [];
          const looks: IngestChild[] = [];
          const look = (): string | undefined => (killed.length === 0 ? undefined : lookAt(killed.at(-1)!));
          for (const left of missing.size > 0 ? missing : (Object.keys(inInsert) as Left[])) {
            await world.produce({ edge_logs: 1_500, function_edge_logs: 100, postgres_logs: 50 });
            const at: At = { step: 'in_insert', match: '^edge_logs ', ...inInsert[left] };
            killed.push(await killAt(world, folder.path, at, look()));
            looks.push(killed.at(-1)!.child);
          }
          const last = start(world, folder.path, undefined, look());
          await expectExactWithoutOrphans(world, last, ...killed);
          killed.forEach(({ isRecovery }, i) => {
            const left = leftOf(logged([...looks, last][i + 1]!, 'found_at_start')[0]);
            if (left === undefined) return;
            missing.delete(left);
            if (isRecovery) recovering.push(left);
          });
        }
      } finally {
        folder.remove();
      }
    },
  );

  test('of a batch that was announced under a larger BATCH_MAX_BYTES: formed as announced, and those after it smaller', async () => {
    const folder = temporaryFolder();
    try {
      const MiB = 1024 ** 2;
      const world = await createWorld();
      await world.produce({ edge_logs: 4_000 });
      expect(
        await startIngestChild({
          env: { ...world.env, DATA_DIR: folder.path, BATCH_MAX_BYTES: String(4 * MiB) },
          sessionTimeoutMs: SESSION_TIMEOUT_MS,
          at: { step: 'after_intent', match: '^edge_logs\\.' },
        }).exited,
      ).toMatchObject({ signal: 'SIGKILL' });
      const last = startIngestChild({
        env: { ...world.env, DATA_DIR: folder.path, BATCH_MAX_BYTES: String(MiB) },
        sessionTimeoutMs: SESSION_TIMEOUT_MS,
      });
      await world.finished(last.reader);
      await world.expectExact(last.reader);
      // of one partition, or of both: their intents are committed one right after the other
      const recovered = logged(last, 'batch_recovered') as { partition: number; last: number }[];
      const batches = rows<{ partition: number; last: number; bytes: number }>(
        await last.reader.read({
          sql: 'SELECT kafka_partition AS partition, toFloat64(batch_last) AS last, toFloat64(sum(length(message))) AS bytes FROM edge_logs GROUP BY ALL',
          format: 'JSONEachRow',
        }),
      );
      const isRecovered = (b: { partition: number; last: number }): boolean =>
        recovered.some((r) => r.partition === b.partition && r.last === b.last);
      expect(Math.max(...batches.filter(isRecovered).map((b) => b.bytes))).toBeGreaterThan(2 * MiB);
      expect(Math.max(...batches.filter((b) => !isRecovered(b)).map((b) => b.bytes))).toBeLessThan(MiB);
      expect(await last.stop()).toMatchObject({ code: 0 });
    } finally {
      folder.remove();
    }
  });
});
