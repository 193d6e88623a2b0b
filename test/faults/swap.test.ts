import { afterAll, beforeAll, expect, test } from 'vitest';
import { select } from '../../common/clickhouse/clickhouse.ts';
import { readSettings } from '../../common/config/settings.ts';
import { createRegistry } from '../../common/metrics.ts';
import { build } from '../../services/rollup/period/build.ts';
import { readRollups } from '../../services/rollup/period/catalogue.ts';
import type { Context } from '../../services/rollup/period/context.ts';
import { createRollupMetrics } from '../../services/rollup/period/metrics.ts';
import { testLogger } from '../harness/clickhouse.ts';
import { openTestStore } from '../harness/ingest-store.ts';
import { openFace, type FaceEngine } from './face-engine.ts';

// Guarantee: what a build has swapped in outlives kill -9 of the server, alone: what it replaced does not come back.

const REF = 'abcdefghijklmnopqrst';
const BATCHES = 3;
let engine: FaceEngine;

beforeAll(async () => {
  engine = await openFace();
});
afterAll(() => engine.close());

const requests = async (): Promise<number[]> =>
  (
    await select<{ n: number }>(
      engine.clickhouse,
      'SELECT toUInt32(sum(requests)) AS n FROM api_requests GROUP BY width ORDER BY width',
    )
  ).map(({ n }) => n);

test('kill -9 of the server right after a period was built, by fill and by removal', async () => {
  const { clickhouse } = engine;
  const now = Date.now();
  const store = openTestStore(clickhouse, {
    source: 'edge_logs',
    topic: 'edge_logs',
    partition: 0,
    retentionDays: 90,
    maxEventBytes: 100_000,
  });
  for (let offset = 0; offset < BATCHES; offset++) {
    const value = JSON.stringify({
      id: `r${offset}`,
      project: 'p',
      timestamp: now,
      metadata: { request: { url: `https://${REF}.example/rest/v1/x`, path: '/rest/v1/x' } },
    });
    await store.writeBatch({
      evaluatedAt: now,
      records: [{ offset, time: now, key: null, headers: [], value: Buffer.from(value) }],
    });
  }
  expect(await requests()).toEqual([BATCHES, BATCHES, BATCHES]);
  // another sum than the build makes: so a part that comes back is seen
  await clickhouse.execute({ sql: 'INSERT INTO api_requests_v1 SELECT * FROM api_requests_v1' });
  expect(await requests()).toEqual([2 * BATCHES, 2 * BATCHES, 2 * BATCHES]);
  const context: Context = {
    clickhouse,
    settings: readSettings({}),
    logger: testLogger,
    metrics: createRollupMetrics(createRegistry()),
    clock: Date.now,
    engineClock: () => Promise.resolve(Date.now()),
    wait: () => Promise.resolve(),
  };
  const [stored] = await select<{ period: number }>(
    clickhouse,
    'SELECT toUnixTimestamp(max(period)) AS period FROM edge_logs',
  );
  const { period } = stored!;
  const rollup = (await readRollups(clickhouse)).find((r) => r.name === 'api_requests')!;

  expect(await build(context, rollup, period)).toMatchObject({ kind: 'built' });
  await engine.face.kill();
  await engine.restart();
  expect(await requests()).toEqual([BATCHES, BATCHES, BATCHES]);

  await clickhouse.execute({ sql: 'TRUNCATE TABLE edge_logs' });
  expect(await build(context, rollup, period, { acceptLoss: true })).toMatchObject({ kind: 'built' });
  expect(await requests()).toEqual([]);
  await engine.face.kill();
  await engine.restart();
  expect(await requests()).toEqual([]);
});
