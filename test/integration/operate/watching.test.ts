import { afterAll, beforeAll, expect, test } from 'vitest';
import { rows, type ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import { createKafka } from '../../../common/kafka/client.ts';
import { createRegistry, type Registry } from '../../../common/metrics.ts';
import { serveMetrics, type MetricsServer } from '../../../common/metrics-server.ts';
import { startIngest, type RunningIngest } from '../../../services/ingest/service.ts';
import { startRollup, type RollupService } from '../../../services/rollup/service.ts';
import { createWorld, type World } from '../../faults/ledger.ts';
import { openTestClickHouse, testLogger, type TestClickHouse } from '../../harness/clickhouse.ts';
import { kafkaBrokers } from '../../harness/kafka.ts';
import { waitFor } from '../../harness/wait-for.ts';
import { send } from '../query/service.ts';

// Guarantee: what alerts and dashboard look at is true: lag, position and freshness after the last event as well, and
// what the tables hold by the tables.

let engine: TestClickHouse;
let world: World;
let ingest: RunningIngest;
let rollup: RollupService;
/** of the metric, when a row was about to be written into the ledger, and the first offset of that row */
const beforeLedger: { readonly position: number | undefined; readonly first: number }[] = [];
const registries = { ingest: createRegistry(), rollup: createRegistry() };

beforeAll(async () => {
  [world, engine] = await Promise.all([createWorld(), openTestClickHouse()]);
  const kafka = createKafka({
    brokers: kafkaBrokers(),
    clientId: 'watching',
    logger: testLogger,
    maxDecompressedBytes: world.settings.KAFKA_MAX_DECOMPRESSED_BYTES,
  });
  ingest = await startIngest({
    clickhouse: watchingTheLedger(engine.clickhouse),
    kafka,
    settings: world.settings,
    logger: testLogger,
    registry: registries.ingest,
  });
  await world.produce({ edge_logs: 200, auth_logs: 100 });
  await world.finished(engine.clickhouse);
  rollup = await startRollup({
    clickhouse: engine.clickhouse,
    settings: world.settings,
    logger: testLogger,
    registry: registries.rollup,
  });
});
afterAll(async () => {
  await rollup.stop();
  await ingest.stop();
  await engine.close();
});

function watchingTheLedger(clickhouse: ClickHouse): ClickHouse {
  return {
    ...clickhouse,
    insertRows: async (insert) => {
      if (insert.table === 'batches') {
        const positions = await valuesOf(registries.ingest, 'sluice_ingest_position_offset');
        for (const { topic, partition, first } of firstOffsetsOf(insert.pieces)) {
          beforeLedger.push({
            position: positions.find(({ labels }) => labels['topic'] === topic && labels['partition'] === partition)
              ?.value,
            first,
          });
        }
      }
      return clickhouse.insertRows(insert);
    },
  };
}

/**
 * Of ledger rows in RowBinary: topic, incarnation, partition, first. A row's place is found by the topic that it begins
 * with.
 */
function firstOffsetsOf(pieces: Iterable<Uint8Array>): { topic: string; partition: number; first: number }[] {
  const bytes = Buffer.concat([...pieces]);
  return ['edge_logs', 'auth_logs']
    .map((source) => world.settings.KAFKA_TOPICS[source as 'edge_logs' | 'auth_logs'])
    .flatMap((topic) => {
      const found: { topic: string; partition: number; first: number }[] = [];
      const start = Buffer.concat([Buffer.from([topic.length]), Buffer.from(topic)]);
      for (let at = bytes.indexOf(start); at >= 0; at = bytes.indexOf(start, at + 1)) {
        const fields = at + start.length;
        found.push({
          topic,
          partition: bytes.readUInt32LE(fields + 4),
          first: Number(bytes.readBigUInt64LE(fields + 8)),
        });
      }
      return found;
    });
}

async function valuesOf(
  registry: Registry,
  name: string,
): Promise<{ labels: Partial<Record<string, string | number>>; value: number }[]> {
  return (await registry.getSingleMetric(name)!.get()).values;
}

test('a partition whose records are all in the ledger has no lag, and its position is the end of the ledger', async () => {
  const ofAll = Object.keys(world.settings.KAFKA_TOPICS).length * world.settings.KAFKA_TOPIC_PARTITIONS;
  await waitFor(
    async () => {
      const lags = await valuesOf(registries.ingest, 'sluice_ingest_lag_records');
      return lags.length === ofAll && lags.every((l) => l.value === 0);
    },
    10_000,
    'no lag is left',
  );
  const ends = rows<{ topic: string; partition: number; next: number }>(
    await engine.clickhouse.read({
      sql: `SELECT topic, partition, max(last) + 1 AS next FROM batches WHERE endsWith(topic, '${world.groupId}') GROUP BY topic, partition`,
      format: 'JSONEachRow',
    }),
  );
  const positions = await valuesOf(registries.ingest, 'sluice_ingest_position_offset');
  for (const { topic, partition, next } of ends)
    expect(positions).toContainEqual({ labels: { topic, partition }, value: next });
  expect(beforeLedger.length).toBeGreaterThanOrEqual(ends.length);
  for (const { position, first } of beforeLedger) expect(position).toBe(first);
});

test('freshness is the age of the newest record of a source when it became visible', async () => {
  const ages = await valuesOf(registries.ingest, 'sluice_ingest_freshness_seconds');
  expect(new Set(ages.map((a) => a.labels['source']))).toEqual(new Set(['auth_logs', 'edge_logs']));
  // records of this world are up to five days old by their own time
  for (const { value } of ages) expect(value > 0 && value < 6 * 86_400).toBe(true);
});

test('rows, parts and bytes are those of the tables; the share of dead letters is that of the ledger', async () => {
  const [counted] = rows<{ stored: number; dead: number }>(
    await engine.clickhouse.read({
      sql: `SELECT sum(stored) AS stored, sum(dead_lettered) AS dead FROM batches WHERE source = 'edge_logs'`,
      format: 'JSONEachRow',
    }),
  );
  const of = async (name: string, labels: object): Promise<number | undefined> =>
    (await valuesOf(registries.rollup, name)).find((v) => JSON.stringify(v.labels) === JSON.stringify(labels))?.value;
  expect(counted!.dead).toBeGreaterThan(0);
  await waitFor(
    async () => (await of('sluice_rollup_table_rows', { table: 'edge_logs' })) === counted!.stored,
    10_000,
    'the tables have been looked at',
  );
  expect(await of('sluice_rollup_dead_letter_share', { source: 'edge_logs' })).toBeCloseTo(
    counted!.dead / (counted!.stored + counted!.dead),
  );
  expect(await of('sluice_rollup_table_bytes', { table: 'edge_logs' })).toBeGreaterThan(0);
  expect(await of('sluice_rollup_table_fullest_partition_parts', { table: 'edge_logs' })).toBeGreaterThan(0);
});

test('a service without HTTP of its own is alive, and ready when its checks say so; no path ends it', async () => {
  let server: MetricsServer | undefined;
  let problem: string | undefined = 'has not joined its group';
  try {
    server = await serveMetrics(registries.ingest, '127.0.0.1', 0, {
      consumer: async () => problem,
      clickhouse: () => engine.clickhouse.ping().then(() => undefined),
    });
    const get = async (path: string): Promise<[number, string]> =>
      fetch(server!.address + path).then(async (r) => [r.status, await r.text()]);
    expect(await get('/livez')).toEqual([200, '{"status":"ok"}']);
    expect(await get('/readyz')).toEqual([
      503,
      '{"status":"not_ready","checks":{"consumer":"has not joined its group","clickhouse":"ok"}}',
    ]);
    problem = undefined;
    // an answer may be a second old
    await waitFor(async () => (await get('/readyz'))[0] === 200, 1_500, 'it is ready');
    expect((await get('/metrics'))[1]).toContain('sluice_ingest_events_total{source="edge_logs"}');
    expect((await get('/metrics?x=1'))[0]).toBe(200);
    for (const path of ['/api/keys', '//', '//:1/metrics', 'http://[', '*'])
      expect((await send(server.address, path)).status).toBe(404);
  } finally {
    await server?.stop();
  }
});
