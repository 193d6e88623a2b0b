import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startServer, type TestServer } from '../../harness/clickhouse-server.ts';
import { temporaryFolder } from '../../harness/temporary-folder.ts';

// Guarantee: a server with deploy/clickhouse/sluice.xml keeps room on its disk, and its own logs have an end.

const FILE = new URL('../../../deploy/clickhouse/sluice.xml', import.meta.url);
const BY_MONTH = '<partition_by>toYYYYMM(event_date)</partition_by>';
/** The logs that the configuration of the image enables, as it does. */
const LOGS: Readonly<Record<string, string>> = {
  query_log: BY_MONTH,
  trace_log: BY_MONTH,
  query_thread_log: BY_MONTH,
  query_views_log: BY_MONTH,
  part_log: BY_MONTH,
  text_log: '<level>trace</level>',
  metric_log: '<collect_interval_milliseconds>1000</collect_interval_milliseconds>',
  error_log: '<collect_interval_milliseconds>1000</collect_interval_milliseconds>',
  query_metric_log: '<collect_interval_milliseconds>1000</collect_interval_milliseconds>',
  asynchronous_metric_log: '',
  opentelemetry_span_log:
    '<engine>engine MergeTree partition by toYYYYMM(finish_date) order by (finish_date, finish_time_us)</engine>',
  crash_log: '<partition_by/>',
  processors_profile_log: `${BY_MONTH}<ttl>event_date + INTERVAL 30 DAY DELETE</ttl>`,
  asynchronous_insert_log: '<partition_by>event_date</partition_by><ttl>event_date + INTERVAL 3 DAY</ttl>',
  backup_log: BY_MONTH,
  s3queue_log: BY_MONTH,
  blob_storage_log: `${BY_MONTH}<ttl>event_date + INTERVAL 30 DAY</ttl>`,
};

const folder = temporaryFolder();
let server: TestServer;

beforeAll(async () => {
  const config = Object.entries(LOGS)
    .map(([name, more]) => `<${name}><database>system</database><table>${name}</table>${more}</${name}>`)
    .join('\n');
  // beside the configuration, as in the container
  const beside = join(folder.path, 'server-25.8', 'config.d');
  mkdirSync(beside, { recursive: true });
  writeFileSync(
    join(beside, 'sluice.xml'),
    readFileSync(FILE, 'utf8').replaceAll('/backups/', join(folder.path, 'backups/')),
  );
  server = await startServer({ dataDir: folder.path, config });
});
afterAll(async () => {
  await server.stop();
  folder.remove();
});

test('1 GiB of the disk of the data stays free; that of the backups may be filled', async () => {
  expect(await server.query('SELECT name, keep_free_space FROM system.disks ORDER BY name')).toBe(
    `backups\t0\ndefault\t${2 ** 30}`,
  );
});

test('each log of ClickHouse that the image keeps as a table ends after three days, or is not kept', async () => {
  await server.query('SYSTEM FLUSH LOGS');
  const tables = await server.query(
    "SELECT name, extract(engine_full, ' TTL (.*?) SETTINGS') FROM system.tables WHERE database = 'system' AND engine LIKE '%MergeTree' ORDER BY name",
  );
  const kept = Object.keys(LOGS).filter((name) => name !== 'opentelemetry_span_log');
  expect(tables.split('\n')).toEqual(kept.toSorted().map((name) => `${name}\tevent_date + toIntervalDay(3)`));
});
