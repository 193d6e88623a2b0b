import { afterEach, describe, expect, test } from 'vitest';
import type { ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import { migrate } from '../../../common/clickhouse/migrations.ts';
import { checkRights } from '../../../common/clickhouse/rights.ts';
import { openServer } from '../../../common/clickhouse/server/server.ts';
import { proveExactlyOnce } from '../../../services/ingest/store/canary.ts';
import { openTestEmbedded, temporaryFolder, testLogger } from '../../harness/clickhouse.ts';
import { startServer, type ServerOptions, type TestServer } from '../../harness/clickhouse-server.ts';

// Guarantee: ingest begins only on a ClickHouse that counts a batch once however often it is inserted, and keeps nothing
// of one that fails. Otherwise it ends with one line that names the setting or the version. Rights: clickhouse/rights.test.ts.

const ends: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end();
});

async function start(options: Omit<ServerOptions, 'dataDir'>): Promise<TestServer> {
  const folder = temporaryFolder();
  ends.push(folder.remove);
  const server = await startServer({ ...options, dataDir: folder.path });
  ends.push(() => server.kill());
  await server.query('CREATE DATABASE sluice');
  return server;
}

async function open(url: string): Promise<ClickHouse> {
  const clickhouse = await openServer({ url: `${url}/sluice`, logger: testLogger, wait: false });
  ends.push(() => clickhouse.close());
  return clickhouse;
}

const failure = async (promise: Promise<unknown>): Promise<Error> =>
  promise.then(
    () => {
      throw new Error('it did not fail');
    },
    (error: unknown) => error as Error,
  );

describe('the canary passes', () => {
  test('on the embedded engine, in less than 400 ms of CPU', async () => {
    const opened = await openTestEmbedded();
    ends.push(() => opened.close());
    const { clickhouse } = opened;
    await migrate(clickhouse, testLogger);
    await proveExactlyOnce(clickhouse);
    const before = process.cpuUsage();
    await proveExactlyOnce(clickhouse);
    const { user, system } = process.cpuUsage(before);
    expect((user + system) / 1000).toBeLessThan(400);
  });

  test.each([
    ['25.8', 'plain'],
    ['25.8', 'hostile'],
    ['26.7', 'plain'],
    ['26.7', 'hostile'],
  ] as const)('on a server of %s under a %s profile, which the pinned settings outdo', async (version, profile) => {
    const clickhouse = await open((await start({ version, profile })).url);
    await migrate(clickhouse, testLogger);
    await checkRights(clickhouse, 'ingest');
    await proveExactlyOnce(clickhouse);
    await expect(proveExactlyOnce(clickhouse)).resolves.toBeUndefined();
  });
});

describe('ingest refuses to begin', () => {
  test.each<[string, NonNullable<ServerOptions['settings']>, RegExp]>([
    [
      'insert_deduplicate',
      { insert_deduplicate: { value: 0, readonly: true } },
      /refuses a setting .*insert_deduplicate.*profile/,
    ],
    [
      'deduplicate_blocks_in_dependent_materialized_views',
      { deduplicate_blocks_in_dependent_materialized_views: { value: 0, readonly: true } },
      /refuses a setting .*deduplicate_blocks_in_dependent_materialized_views/,
    ],
    [
      'max_insert_block_size',
      { max_insert_block_size: { value: 10, readonly: true } },
      /refuses a setting .*max_insert_block_size/,
    ],
  ])('where a constraint keeps %s as it is', async (_, settings, message) => {
    const server = await start({ settings });
    const clickhouse = await open(server.url);
    await migrate(await open(server.url.replace('sluice@', 'admin@')), testLogger);
    const error = await failure(proveExactlyOnce(clickhouse));
    expect(error).toMatchObject({ name: 'StartError', exitCode: 78 });
    expect(error.message).toMatch(message);
    expect(error.message).not.toContain('\n');
  });

  test('where the tables keep no tokens, so that what a statement asks for has no effect', async () => {
    const clickhouse = await open((await start({})).url);
    await migrate(clickhouse, testLogger);
    await clickhouse.execute({ sql: 'ALTER TABLE canary MODIFY SETTING non_replicated_deduplication_window = 0' });
    expect((await failure(proveExactlyOnce(clickhouse))).message).toMatch(
      /does not store exactly once: a batch of 64 rows that was inserted twice under one token is stored 2 times.*insert_deduplicate = 1/,
    );
    await clickhouse.execute({ sql: 'ALTER TABLE canary MODIFY SETTING non_replicated_deduplication_window = 100' });
    await clickhouse.execute({
      sql: 'ALTER TABLE canary_counts MODIFY SETTING non_replicated_deduplication_window = 0',
    });
    await failure(proveExactlyOnce(clickhouse));
  });

  test('where its profile is read-only', async () => {
    const server = await start({ settings: { readonly: 1 } });
    // a user whose profile is read-only may change no setting, so it is told before anything else
    expect(await failure(open(server.url).then((clickhouse) => checkRights(clickhouse, 'ingest')))).toMatchObject({
      name: 'StartError',
      message: expect.stringMatching(/readonly/) as string,
    });
  });
});
