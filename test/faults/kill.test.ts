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

afterEach(endIngestChildren);

function start(world: World, dataDir: string, at?: At): IngestChild {
  return startIngestChild({
    env: { ...world.env, DATA_DIR: dataDir },
    sessionTimeoutMs: SESSION_TIMEOUT_MS,
    at: at === undefined ? undefined : { match: '^(edge_logs|batches)\\b', ...at },
  });
}

/** Killed in a row, then finished and counted. */
const places: readonly (readonly [name: string, kills: readonly At[]])[] = [
  ['around the intent', [{ step: 'before_intent' }, { step: 'after_intent' }, { step: 'before_insert' }]],
  [
    'in the insert: before raw, between raw and its views, between the views',
    [5, 25, 45, 70, 110].map((delayMs) => ({ step: 'in_insert', delayMs })),
  ],
  [
    'between insert, ledger and commit',
    [{ step: 'after_insert' }, { step: 'in_ledger', delayMs: 1 }, { step: 'after_ledger' }, { step: 'after_commit' }],
  ],
];

describe('kill -9', () => {
  test.each(places)('%s', async (_, kills) => {
    const folder = temporaryFolder();
    try {
      const world = await createWorld();
      for (const at of kills) {
        await world.produce({ edge_logs: 1_500, function_edge_logs: 300, postgres_logs: 100 });
        expect(await start(world, folder.path, at).exited, JSON.stringify(at)).toEqual({
          code: null,
          signal: 'SIGKILL',
        });
      }
      const last = start(world, folder.path);
      await world.finished(last.reader);
      await world.expectExact(last.reader);
      expect(logged(last, 'orphan_rows_found')).toEqual([]);
      expect(await last.stop()).toMatchObject({ code: 0 });
    } finally {
      folder.remove();
    }
  });

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
