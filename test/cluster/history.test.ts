import { isDeepStrictEqual } from 'node:util';
import { expect, test } from 'vitest';
import type { ClickHouse, Statement } from '../../common/clickhouse/clickhouse.ts';
import { loadMigrations, migrate } from '../../common/clickhouse/migrations.ts';
import { readRollups } from '../../services/rollup/period/catalogue.ts';
import type { Context } from '../../services/rollup/period/context.ts';
import { DAY, floorTo } from '../../services/rollup/period/time.ts';
import { admitNew, nextStep } from '../../services/rollup/history.ts';
import { createRollupMetrics } from '../../services/rollup/period/metrics.ts';
import { beginToday } from '../../services/rollup/period/periods.ts';
import { testLogger } from '../harness/clickhouse.ts';
import { openTestStore } from '../harness/ingest-store.ts';
import { waitFor } from '../harness/wait-for.ts';
import { SECOND_VERSION } from '../integration/rollup/second-version.ts';
import { PATIENCE_MS, useCluster } from './use-cluster.ts';

// Guarantee: what history has built is read, and what it replaces is dropped, when every replica has it. History is
// built through node 0. Node 1 fetches none of it, or is down.

const on = useCluster({ shards: 1 });
const queryOn = (node: number, sql: string): Promise<string> => on.cluster.nodes[node]!.server.query(sql);

/** A database of its own whose raw table has 50 invocations. */
async function openHistory(database: string) {
  for (const node of [0, 1]) await queryOn(node, `CREATE DATABASE ${database}`);
  const clickhouse = await on.clientAs('sluice', [0, 1], database);
  let builds = 0;
  const execute = async (statement: Statement): Promise<void> => {
    if (statement.sql.includes('REPLACE PARTITION')) builds++;
    await clickhouse.execute(statement);
  };
  const context: Context = {
    clickhouse: { ...clickhouse, execute },
    settings: on.world.settings,
    logger: testLogger,
    metrics: createRollupMetrics(undefined),
    clock: Date.now,
    engineClock: () => Promise.resolve(Date.now()),
    wait: () => Promise.resolve(),
  };
  const table = (name: string): string => `${database}.${name}`;
  const askedOn = (node: number): Promise<string> =>
    queryOn(node, `SELECT sum(count) FROM ${table('function_invocations')} WHERE width = 3600`);
  const fetches = (verb: 'STOP' | 'START', version: number): Promise<string> =>
    queryOn(1, `SYSTEM ${verb} FETCHES ${table(`function_invocations_v${version}`)}`);
  /** [version, state, number of pending periods] */
  const states = async (): Promise<unknown[]> =>
    (await readRollups(clickhouse))
      .filter((r) => r.name === 'function_invocations')
      .map((r) => [r.version, r.state, r.pending.length]);
  const isTable = async (node: number): Promise<boolean> =>
    (await queryOn(
      node,
      `SELECT engine FROM system.tables WHERE database = '${database}' AND name = 'function_invocations_v1'`,
    )) !== 'View';
  const finish = (): Promise<boolean> =>
    waitFor(async () => (await nextStep(context)) === undefined, PATIENCE_MS, 'all steps are taken');

  const all = loadMigrations();
  await migrate(
    clickhouse,
    testLogger,
    all.filter(({ name }) => !/_(rollup_catalogue|function_invocations|api_requests)\.sql$/.test(name)),
  );
  await send(clickhouse);
  await migrate(clickhouse, testLogger, all);
  await beginToday(context);
  await admitNew(context);
  return { clickhouse, context, askedOn, fetches, states, isTable, finish, builds: () => builds };
}

let batches = 0;

/** 50 invocations, as one batch. */
async function send(clickhouse: ClickHouse): Promise<void> {
  const evaluatedAt = Date.now();
  const records = Array.from({ length: 50 }, (_, offset) => ({
    offset,
    time: evaluatedAt,
    key: null,
    headers: [],
    value: Buffer.from(
      JSON.stringify({
        timestamp: (evaluatedAt - offset) * 1000,
        metadata: { project_ref: 'p', function_id: 'f', execution_time_ms: 5, response: { status_code: 200 } },
      }),
    ),
  }));
  const store = openTestStore(clickhouse, { source: 'function_edge_logs', topic: `history${++batches}` });
  await store.writeBatch({ evaluatedAt, period: floorTo(evaluatedAt / 1000, DAY), records });
}

test('a period is read from raw until every replica has fetched what was built of it', async () => {
  const { context, askedOn, fetches, states, finish, builds } = await openHistory('pending');
  expect([await askedOn(0), await askedOn(1)]).toEqual(['50', '50']);
  await fetches('STOP', 1);
  try {
    for (let step = 0; step < 3; step++) {
      await nextStep(context);
      expect([await askedOn(0), await askedOn(1)]).toEqual(['50', '50']);
    }
    expect(await states()).toEqual([[1, 'building', 1]]);
  } finally {
    await fetches('START', 1);
  }
  await finish();
  expect([await askedOn(0), await askedOn(1)]).toEqual(['50', '50']);
  expect(await states()).toEqual([[1, 'serving', 0]]);
  expect(builds()).toBe(1);
});

test('a replica that returns after a build gives whole answers at once', { timeout: 600_000 }, async () => {
  const { context, askedOn, states, finish } = await openHistory('returns');
  await on.cluster.nodes[1]!.server.kill();
  const step = async (): Promise<boolean> => {
    await nextStep(context);
    return true;
  };
  try {
    // nothing is built until Keeper has ended the session of the lost node
    await waitFor(step, PATIENCE_MS, 'a step is taken without the node');
    await step();
  } finally {
    await on.cluster.restart(1);
  }
  for (let asked = 0; asked < 10; asked++) expect(await askedOn(1)).toBe('50');
  expect(await states()).toEqual([[1, 'building', 1]]);
  await finish();
  expect([await askedOn(0), await askedOn(1)]).toEqual(['50', '50']);
  expect(await states()).toEqual([[1, 'serving', 0]]);
});

test('a version is dropped when every replica has the one that replaces it', async () => {
  const { clickhouse, context, askedOn, fetches, states, isTable, finish } = await openHistory('replaced');
  await finish();
  await migrate(clickhouse, testLogger, SECOND_VERSION);
  await admitNew(context);
  const stopped = async (): Promise<void> => {
    for (let step = 0; step < 3; step++) await nextStep(context);
    expect([await isTable(0), await isTable(1)]).toEqual([true, true]);
  };
  await fetches('STOP', 2);
  try {
    await stopped();
    await fetches('START', 2);
    const serves = async (): Promise<boolean> => {
      await nextStep(context);
      return (await states()).some((state) => isDeepStrictEqual(state, [2, 'serving', 0]));
    };
    await waitFor(serves, PATIENCE_MS, 'the new version serves');
    await fetches('STOP', 2);
    await send(clickhouse);
    await stopped();
  } finally {
    await fetches('START', 2);
  }
  await finish();
  expect([await isTable(0), await isTable(1)]).toEqual([false, false]);
  expect([await askedOn(0), await askedOn(1)]).toEqual(['100', '100']);
});

test('a replica that is lost for good delays nothing once Keeper has forgotten it', { timeout: 600_000 }, async () => {
  const { context, askedOn, states, finish } = await openHistory('forgotten');
  const { server, shard, replica } = on.cluster.nodes[1]!;
  await server.kill();
  await waitFor(
    async () => {
      await queryOn(0, `SYSTEM DROP REPLICA '${shard}-${replica}'`);
      return true;
    },
    PATIENCE_MS,
    'Keeper has ended the session of the lost node',
  );
  await nextStep(context);
  await finish();
  expect(await askedOn(0)).toBe('50');
  expect(await states()).toEqual([[1, 'serving', 0]]);
});
