import { expect, test } from 'vitest';
import { openClickHouse } from '../../common/clickhouse/open.ts';
import { readSettings } from '../../common/config/settings.ts';
import { startServer } from '../harness/clickhouse-server.ts';
import { temporaryFolder, testLogger } from '../harness/clickhouse.ts';

// Guarantee: a cluster that cannot hold replicated tables stops the start, with one line that says what it lacks.

test('a server without macros, Keeper and remote_servers is refused with all of it', async () => {
  const folder = temporaryFolder();
  const server = await startServer({ dataDir: folder.path, config: '<macros><shard>s1</shard></macros>' });
  try {
    const settings = readSettings({ CLICKHOUSE_URL: `${server.url}/default`, CLICKHOUSE_CLUSTER: 'absent' });
    const error = await openClickHouse(settings, testLogger, { service: 'rollup', wait: false }).catch(
      (e: unknown) => e as Error & { exitCode: number },
    );
    expect(error).toMatchObject({ name: 'StartError', exitCode: 78 });
    const { message } = error as Error;
    for (const what of [
      'CLICKHOUSE_CLUSTER=absent',
      'remote_servers has no cluster absent',
      'macros has no replica',
      'Keeper (section zookeeper) does not answer',
      'section distributed_ddl is absent',
    ])
      expect(message).toContain(what);
    expect(message).not.toContain('macros has no shard');
    expect(message).not.toContain('\n');
  } finally {
    await server.stop();
    folder.remove();
  }
});

test('settings that do not fit together are refused before anything starts', () => {
  const nodes = 'http://a:8123/logs,http://b:8123/logs';
  expect(() => readSettings({ CLICKHOUSE_URL: nodes })).toThrow('CLICKHOUSE_CLUSTER is not given');
  expect(() => readSettings({ CLICKHOUSE_CLUSTER: 'logs' })).toThrow('CLICKHOUSE_CLUSTER needs CLICKHOUSE_URL');
  expect(() => readSettings({ CLICKHOUSE_URL: `${nodes}2`, CLICKHOUSE_CLUSTER: 'logs' })).toThrow('several databases');
  expect(readSettings({ CLICKHOUSE_URL: nodes, CLICKHOUSE_CLUSTER: 'logs' }).CLICKHOUSE_URL).toBe(nodes);
});
