import { createClient } from '@clickhouse/client';
import { inject } from 'vitest';
import type { ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { openEmbedded } from '../../common/clickhouse/embedded/embedded.ts';
import { migrate } from '../../common/clickhouse/migrations.ts';
import { databaseOfAll } from '../../common/clickhouse/database.ts';
import { openCluster } from '../../common/clickhouse/cluster/shards.ts';
import { openServer } from '../../common/clickhouse/server/server.ts';
import { createLogger, type Logger } from '../../common/logger.ts';
import { CLUSTER } from './clickhouse-cluster.ts';
import { startFace, type Face } from './clickhouse-face.ts';
import { temporaryFolder } from './temporary-folder.ts';

export { temporaryFolder } from './temporary-folder.ts';

export interface TestClickHouse {
  readonly clickhouse: ClickHouse;
  /** the same database through another node, if this project has a cluster */
  readonly other?: ClickHouse;
  /** what a process of its own needs to reach the same engine; an embedded one has to be closed first */
  readonly env: {
    readonly DATA_DIR: string;
    readonly CLICKHOUSE_URL?: string;
    readonly CLICKHOUSE_CLUSTER?: string;
  };
  /** closes the connection and removes database or folder */
  close(): Promise<void>;
}

export const testLogger: Logger = createLogger(process.env['TEST_LOG_LEVEL'] ?? 'warn');

/**
 * An engine of its own for a test file: a fresh database on the server of this project (TEST_CLICKHOUSE), where it has
 * one, else the embedded engine in a fresh folder.
 * With all migrations applied unless `migrated` is false.
 */
export async function openTestClickHouse({ migrated = true }: { migrated?: boolean } = {}): Promise<TestClickHouse> {
  const test = hasServer() ? await openTestDatabase() : await openTestEmbedded();
  if (migrated) await migrate(test.clickhouse, testLogger);
  return test;
}

/** Whether the tests of this project share a ClickHouse server. */
export function hasServer(): boolean {
  return inject('clickhouseUrl') !== null;
}

/** The embedded engine in a fresh folder. */
export async function openTestEmbedded(): Promise<TestClickHouse> {
  const folder = temporaryFolder();
  const clickhouse = await openEmbedded({ dataDir: folder.path, logger: testLogger });
  return {
    clickhouse,
    env: { DATA_DIR: folder.path },
    close: async () => {
      await clickhouse.close();
      folder.remove();
    },
  };
}

/**
 * Server mode through @clickhouse/client, to a genuine server of its own: faults can be injected between.
 * `sandbox`: who runs the statements of callers; nobody unless said otherwise.
 */
export async function openTestFace({ sandbox }: { sandbox?: 'without rights' | 'with rights' } = {}): Promise<
  TestClickHouse & { readonly face: Face }
> {
  const folder = temporaryFolder();
  const face = await startFace({ dataDir: folder.path, password: 'secret' });
  const clickhouse = await openServer({
    url: face.url,
    logger: testLogger,
    ...(sandbox !== undefined && { sandboxUrl: sandbox === 'with rights' ? face.url : face.sandboxUrl }),
  });
  return {
    clickhouse,
    face,
    env: { DATA_DIR: folder.path, CLICKHOUSE_URL: face.url },
    close: async () => {
      await clickhouse.close();
      await face.stop();
      folder.remove();
    },
  };
}

let databases = 0;

/** A fresh, empty database on the server of this project. */
export async function openTestDatabase(): Promise<TestClickHouse> {
  const server = inject('clickhouseUrl');
  if (server === null)
    throw new Error('this project has no ClickHouse server: see TEST_CLICKHOUSE in vitest.config.ts');
  const database = `sluice_test_${Date.now().toString(36)}_${process.pid}_${++databases}`;
  const nodes = server.split(',');
  // under a hostile profile too
  const admins = nodes.map((url) => createClient({ url, clickhouse_settings: { use_query_cache: 0 } }));
  // of several shards: databaseOfAll
  const names = nodes.length === 1 ? [database] : [database, databaseOfAll(database)];
  for (const admin of admins) for (const name of names) await admin.command({ query: `CREATE DATABASE ${name}` });
  const urls = nodes.map((url) => Object.assign(new URL(url), { pathname: database }).href);
  const open = (of: readonly string[]): Promise<ClickHouse> =>
    of.length === 1
      ? openServer({ url: of[0]!, logger: testLogger, wait: false })
      : openCluster({ urls: of, cluster: CLUSTER, logger: testLogger, wait: false });
  const clickhouse = await open(urls);
  const other = urls.length === 1 ? undefined : await open(urls.toReversed());
  const folder = temporaryFolder();
  return {
    clickhouse,
    ...(other !== undefined && { other }),
    env: {
      DATA_DIR: folder.path,
      CLICKHOUSE_URL: urls.join(','),
      ...(other !== undefined && { CLICKHOUSE_CLUSTER: CLUSTER }),
    },
    close: async () => {
      await Promise.all([clickhouse.close(), other?.close()]);
      for (const admin of admins) {
        for (const name of names) await admin.command({ query: `DROP DATABASE ${name} SYNC` });
        await admin.close();
      }
      folder.remove();
    },
  };
}
