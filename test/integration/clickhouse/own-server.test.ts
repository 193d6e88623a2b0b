import { afterEach, expect, test } from 'vitest';
import { profileSettings } from '../../harness/clickhouse-profile.ts';
import { startServer, type Profile, type ServerVersion, type TestServer } from '../../harness/clickhouse-server.ts';
import { temporaryFolder } from '../../harness/temporary-folder.ts';

// The genuine servers that other tests run on are what those tests take them for.

const stops: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0).toReversed()) await stop();
});

async function start(
  version: ServerVersion,
  profile: Profile,
): Promise<{ server: TestServer; again: () => Promise<TestServer> }> {
  const folder = temporaryFolder();
  stops.push(folder.remove);
  const server = await startServer({ version, profile, dataDir: folder.path, password: 'p@ss' });
  stops.push(() => server.kill());
  return {
    server,
    again: async () => {
      const next = await startServer({ version, profile, dataDir: folder.path, password: 'p@ss', port: server.port });
      stops.push(() => next.kill());
      return next;
    },
  };
}

/** As the user whom the tests are about. */
async function ask(url: string, sql: string): Promise<string> {
  const { username, password, origin } = new URL(url);
  const response = await fetch(origin, {
    method: 'POST',
    body: sql,
    headers: { 'x-clickhouse-user': username, 'x-clickhouse-key': decodeURIComponent(password) },
  });
  return (await response.text()).trim();
}

test.each([
  ['25.8', 'plain'],
  ['25.8', 'hostile'],
  ['26.7', 'plain'],
  ['26.7', 'hostile'],
] as const)(
  'ClickHouse %s under a %s profile answers, keeps its data through kill -9, and gives nobody a right',
  async (version, profile) => {
    const { server, again } = await start(version, profile);
    expect(await server.query('SELECT version()')).toMatch(new RegExp(`^${version}\\.`));
    await server.query('CREATE DATABASE d');
    await server.query('CREATE TABLE d.t (n UInt64) ENGINE = MergeTree ORDER BY n');
    await server.query('INSERT INTO d.t VALUES (1), (2)');
    for (const [name, value] of Object.entries(profileSettings(profile, version))) {
      // the server applies it to the question and forgets it
      if (name === 'limit') continue;
      const found = await ask(
        server.url,
        `SELECT toString(getSetting('${name}')) FORMAT RawBLOB SETTINGS use_query_cache = 0, extremes = 0`,
      );
      expect(
        typeof value === 'number' ? found.replace(/^(yes|true)$/, '1').replace(/^(no|false)$/, '0') : found,
        name,
      ).toBe(['use_query_cache', 'extremes'].includes(name) ? '0' : String(value));
    }
    expect(await ask(server.nobodyUrl, 'SELECT 1')).toBe('1');
    expect(await ask(server.nobodyUrl, 'SELECT * FROM d.t')).toContain('ACCESS_DENIED');
    await server.kill();
    expect(await (await again()).query('SELECT count() FROM d.t')).toBe('2');
  },
);
