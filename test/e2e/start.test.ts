import { execFileSync } from 'node:child_process';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import net from 'node:net';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { freePort } from '../../common/kafka/local-broker/local-broker.ts';
import { sources, type SourceName } from '../../common/sources.ts';
import { temporaryFolder } from '../harness/clickhouse.ts';
import { kafkaBrokers, produceWithJavaConsole, produceWithLibrdkafka, uniqueName } from '../harness/kafka.ts';
import { endAll, startScript, startSluice } from '../harness/service.ts';
import { waitFor } from '../harness/wait-for.ts';

// `npm start` as a newcomer and an operator meet it: real producers in, answers out, a second start, and every mistake
// in one clear line.

const folders: { remove: () => void }[] = [];
afterAll(async () => {
  await endAll();
  for (const folder of folders) folder.remove();
});

function settingsOf(): {
  settings: Record<string, string> & { API_KEY: string };
  topicOf: (source: SourceName) => string;
} {
  const folder = temporaryFolder();
  folders.push(folder);
  const suffix = uniqueName('start');
  const topicOf = (source: SourceName): string => `${source}.${suffix}`;
  return {
    topicOf,
    settings: {
      DATA_DIR: folder.path,
      KAFKA_BROKERS: kafkaBrokers().join(','),
      KAFKA_GROUP_ID: suffix,
      PORT: '0',
      API_KEY: 'start-test-key',
      LOG_LEVEL: 'warn',
      KAFKA_TOPICS: sources.map((s) => `${s.name}=${topicOf(s.name)}`).join(','),
    },
  };
}

describe('npm start', () => {
  const project = 'qponmlkjihgfedcbaabc';
  const { settings, topicOf } = settingsOf();

  const edge = (i: number): string =>
    JSON.stringify({
      id: `edge-${i}`,
      project,
      timestamp: Date.now() * 1000,
      event_message: 'GET | 200',
      metadata: {
        request: { method: 'GET', path: '/rest/v1/things', url: `https://${project}.supabase.co/rest/v1/things` },
        response: { status_code: 200 },
      },
    });
  const invocation = (milliseconds: number): string =>
    JSON.stringify({
      timestamp: new Date().toISOString(),
      metadata: {
        project_ref: project,
        function_id: 'f1',
        execution_time_ms: milliseconds,
        response: { status_code: milliseconds > 900 ? 500 : 200 },
      },
    });

  test("events of a librdkafka client and of Kafka's Java console producer come out of the endpoints", async () => {
    const sluice = await startSluice(settings);
    // only the consumer may still be joining; an answer may be a second old
    const isReady = async (): Promise<true> => {
      expect(await (await fetch(`${sluice.address}/readyz`)).json()).toMatchObject({
        checks: { clickhouse: 'ok', endpoints: 'ok', keys: 'ok', rollups: 'ok' },
      });
      return true;
    };
    await waitFor(isReady, 1_500, 'all but the consumer is ready');
    await produceWithLibrdkafka(
      [...Array(20).keys()].map((i) => ({
        topic: topicOf('edge_logs'),
        key: project,
        value: edge(i),
        timestamp: Date.now(),
      })),
      { compression: 'zstd' },
    );
    await produceWithJavaConsole(
      topicOf('function_edge_logs'),
      [...Array(50).keys()].map((i) => invocation((i + 1) * 20)),
      { compression: 'lz4' },
    );
    await produceWithJavaConsole(topicOf('edge_logs'), ['not JSON', ...[...Array(5).keys()].map((i) => edge(100 + i))]);

    const logs = await waitFor(
      async () => {
        const rows = await sluice.ask('logs.all', { project });
        return rows.length === 25 ? rows : undefined;
      },
      20_000,
      '25 edge logs',
    );
    expect(new Set(logs.map((row) => row['id'])).size).toBe(25);
    expect(logs[0]!['metadata']).toMatchObject([{ request: [{ method: 'GET' }], response: [{ status_code: 200 }] }]);

    // a batch reaches its raw table a moment before its rollups and the ledger, and an answer is kept: so ask for
    // counts when all is written
    await waitFor(
      async () => {
        const response = await fetch(`${sluice.address}/api/commands/reconcile`, {
          method: 'POST',
          headers: { 'x-api-key': sluice.key, 'content-type': 'application/json' },
          body: '{}',
        });
        const { result } = (await response.json()) as { result: { partitions: { consumed: number | string }[] } };
        return result.partitions.reduce((sum, p) => sum + Number(p.consumed), 0) === 76;
      },
      20_000,
      'the ledger has all 76 messages',
    );
    const counts = await sluice.ask('usage.api-counts', { project, interval: 'hourly' });
    expect(counts.reduce((sum, row) => sum + Number(row['total_rest_requests']), 0)).toBe(25);

    const stats = await sluice.ask('functions.invocation-stats', { project, interval: '7day', function_id: 'f1' });
    const bucket = stats.find((row) => row['count'] === 50)!;
    expect(bucket).toMatchObject({ error_count: 5, min_execution_time: 20, max_execution_time: 1000 });
    expect(Number(bucket['p95_execution_time'])).toBeGreaterThanOrEqual(920);
    expect(Number(bucket['p99_execution_time'])).toBeLessThanOrEqual(1000);

    const ready = await fetch(`${sluice.address}/readyz`);
    expect(ready.status, await ready.text()).toBe(200);
    const account = startScript('reconcile', settings, ['--json', '--url', sluice.address]);
    expect(await account.exited, account.stderr()).toBe(0);
    const { ok, partitions } = JSON.parse(account.stdout()) as {
      ok: boolean;
      partitions: { topic: string; stored: number; dead_lettered: number }[];
    };
    expect(ok).toBe(true);
    expect(partitions.reduce((sum, p) => sum + p.stored, 0)).toBe(75);
    expect(partitions.reduce((sum, p) => sum + p.dead_lettered, 0)).toBe(1);

    const stopping = performance.now();
    expect(await sluice.end('SIGTERM')).toBe(0);
    expect(performance.now() - stopping).toBeLessThan(10_000);
  });

  test('a second start continues where the first was, with all that it stored', async () => {
    await produceWithLibrdkafka([{ topic: topicOf('edge_logs'), value: edge(200), timestamp: Date.now() }]);
    const sluice = await startSluice(settings);
    const logs = await waitFor(
      async () => {
        const rows = await sluice.ask('logs.all', { project });
        return rows.length > 25 ? rows : undefined;
      },
      20_000,
      'the event that arrived in between',
    );
    expect(logs.map((row) => row['id'])).toContain('edge-200');
    expect(logs).toHaveLength(26);

    const second = startScript('start', { ...settings, PORT: '0' });
    expect(await second.exited).toBe(1);
    expect(oneLine(second.stderr())).toMatch(/data folder .* is in use by process \d+/);
    expect(await sluice.end('SIGINT')).toBe(0);
  });

  test('some seconds after the start, V8 gives back what only the start needed', async () => {
    const sluice = await startSluice(settings);
    const newSpace = async (): Promise<number> => {
      const scraped = await (await fetch(`${sluice.address}/metrics`)).text();
      return Number(/nodejs_heap_space_size_total_bytes\{space="new"\} (\d+)/.exec(scraped)![1]);
    };
    // it grows with the start
    let most = 0;
    const isHalved = async (): Promise<boolean> => {
      const now = await newSpace();
      most = Math.max(most, now);
      return now <= most / 2;
    };
    await waitFor(isHalved, 30_000, 'the new space has half of its size', 250);
    expect(await sluice.end()).toBe(0);
  });

  test('in a terminal, the welcome of a first start comes after the lines of all its partitions', async () => {
    const { settings: first } = settingsOf();
    const terminal = join(first['DATA_DIR']!, 'terminal.cjs');
    writeFileSync(terminal, "Object.defineProperty(process.stdout, 'isTTY', { value: true })");
    const sluice = await startSluice({ ...first, NODE_OPTIONS: `--require ${terminal}`, LOG_LEVEL: 'info' });
    const claimed = sluice.stderr().match(/partition_claimed/g)?.length;
    expect(claimed).toBe(3 * sources.length);
    expect(await sluice.end()).toBe(0);
  });
});

describe('mistakes end in one clear line', () => {
  const oneOf = (): Record<string, string> => settingsOf().settings;

  test('every wrong setting is named at once, exit code 78', async () => {
    const service = startScript('start', {
      ...oneOf(),
      PORT: 'abc',
      RAW_RETENTION_DAYS: '0',
      KAFKA_BROKERS: 'nonsense',
      LOG_LEVEL: 'loud',
    });
    expect(await service.exited).toBe(78);
    for (const name of ['PORT', 'RAW_RETENTION_DAYS', 'KAFKA_BROKERS', 'LOG_LEVEL'])
      expect(service.stderr()).toContain(`\n  ${name} `);
    expect(service.stderr()).not.toMatch(/^\s+at /m);
  });

  test('a port in use', async () => {
    const server = net.createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => {
      server.once('listening', resolve);
    });
    const { port } = server.address() as net.AddressInfo;
    const service = startScript('start', { ...oneOf(), PORT: String(port) });
    expect(await service.exited).toBe(1);
    expect(oneLine(service.stderr())).toContain(`port ${port} on 127.0.0.1 is in use`);
    server.close();
  });

  test('a stop while ClickHouse is awaited leaves no broker behind', async () => {
    const { KAFKA_BROKERS: _, ...rest } = oneOf();
    const [kafka, clickhouse] = [await freePort(), await freePort()];
    const service = startScript('start', {
      ...rest,
      LOG_LEVEL: 'info',
      KAFKA_PORT: String(kafka),
      CLICKHOUSE_URL: `http://127.0.0.1:${clickhouse}/absent`,
    });
    await waitFor(() => service.stderr().includes('local_broker_started'), 60_000, 'the broker runs');
    expect(await service.end()).toBe(0);
    const [error] = (await once(net.connect(kafka, '127.0.0.1'), 'error')) as [NodeJS.ErrnoException];
    expect(error.code).toBe('ECONNREFUSED');
  });

  test('a broker that is down', async () => {
    const service = startScript('start', { ...oneOf(), KAFKA_BROKERS: '127.0.0.1:1' });
    expect(await service.exited).toBe(1);
    expect(oneLine(service.stderr())).toMatch(/Kafka does not answer .*127\.0\.0\.1:1.*KAFKA_BROKERS/);
  });

  test('a data folder that cannot be one', async () => {
    const folder = temporaryFolder();
    folders.push(folder);
    const file = join(folder.path, 'file');
    mkdirSync(folder.path, { recursive: true });
    writeFileSync(file, '');
    const service = startScript('start', { ...oneOf(), DATA_DIR: join(file, 'data') });
    expect(await service.exited).toBe(1);
    expect(oneLine(service.stderr())).toContain('DATA_DIR');
  });

  test('no Kafka to be had: the three ways are named', async () => {
    const { KAFKA_BROKERS: _, ...rest } = oneOf();
    // a PATH with node and npm only: no docker, no java, no mvn
    const bin = join(rest['DATA_DIR']!, 'bin');
    mkdirSync(bin, { recursive: true });
    for (const name of ['node', 'npm', 'sh'])
      symlinkSync(execFileSync('which', [name], { encoding: 'utf8' }).trim(), join(bin, name));
    const service = startScript('start', { ...rest, PATH: bin, CACHE_DIR: join(rest['DATA_DIR']!, 'cache') });
    const code = await service.exited;
    expect(service.stderr()).toMatch(/KAFKA_BROKERS.*Docker.*Java/s);
    expect(code).toBe(1);
  });
});

/** What was said, without log lines; it must be one line. */
function oneLine(stderr: string): string {
  const said = stderr.split('\n').filter((line) => line !== '' && !line.startsWith('{'));
  expect(said).toHaveLength(1);
  return said[0]!;
}
