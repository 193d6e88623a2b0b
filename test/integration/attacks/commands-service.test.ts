import { chmodSync, existsSync, lstatSync, mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { freePort } from '../../../common/kafka/local-broker/local-broker.ts';
import { sources } from '../../../common/sources.ts';
import { startFace, type Face } from '../../harness/clickhouse-face.ts';
import { temporaryFolder } from '../../harness/clickhouse.ts';
import { kafkaBrokers, uniqueName } from '../../harness/kafka.ts';
import { endAll, startScript, startSluice, type RunningSluice } from '../../harness/service.ts';
import { send, type Reply } from '../query/service.ts';
import { whileAlive } from './alive.ts';

// Guarantee: an admin key over HTTP makes no folder and calls no address that the operator did not name, stops nobody,
// and hears nothing of the engine;
// what `npm start` writes is for its owner only.

const API_KEY = 'the-admin-key-of-the-tests';
afterAll(endAll);

describe.each(['embedded', 'server'] as const)('npm start (%s)', (mode) => {
  const folder = temporaryFolder();
  const dataDir = join(folder.path, 'data');
  const backups = join(folder.path, 'backups');
  let face: Face | undefined;
  let settings: Record<string, string> & { API_KEY: string };
  let sluice: RunningSluice;

  beforeAll(async () => {
    mkdirSync(dataDir);
    // as releases before made it
    chmodSync(dataDir, 0o755);
    const name = uniqueName('commands');
    if (mode === 'server') face = await startFace({ dataDir: join(folder.path, 'server'), password: 'secret' });
    settings = {
      DATA_DIR: dataDir,
      API_KEY,
      PORT: String(await freePort()),
      LOG_LEVEL: 'info',
      BACKUP_PLACES: `local=${backups}`,
      // the embedded one with a broker of its own, whose files are looked at too
      ...(face === undefined
        ? { KAFKA_PORT: String(await freePort()) }
        : {
            CLICKHOUSE_URL: face.url,
            KAFKA_BROKERS: kafkaBrokers().join(','),
            KAFKA_GROUP_ID: name,
            KAFKA_TOPICS: sources.map((s) => `${s.name}=${s.name}.${name}`).join(','),
          }),
    };
    sluice = await startSluice(settings);
  });
  afterAll(async () => {
    await sluice?.end();
    await face?.stop();
    folder.remove();
  });

  const call = async (command: string, args: unknown): Promise<Reply> =>
    await send(sluice.address, `/api/commands/${command}`, {
      method: 'POST',
      headers: { 'x-api-key': API_KEY },
      body: JSON.stringify(args),
    });

  /** what others than the owner may touch */
  function open(path: string): string[] {
    const stat = lstatSync(path);
    if (stat.isSymbolicLink()) return [];
    const below = stat.isDirectory() ? readdirSync(path).flatMap((name) => open(join(path, name))) : [];
    return (stat.mode & 0o077) === 0 ? below : [path, ...below];
  }

  test('every file and folder that it made is for its owner only, those of the local broker too', () => {
    if (mode === 'embedded') expect(existsSync(join(dataDir, 'kafka', 'data'))).toBe(true);
    expect(open(dataDir)).toEqual([]);
  });

  test('a backup goes to a place of BACKUP_PLACES, for the owner only; nothing else is made or called', async () => {
    const made = await call('backup', { action: 'create', place: 'local/one' });
    expect(made.status, made.text).toBe(200);
    expect(existsSync(join(backups, 'one'))).toBe(true);
    if (mode === 'embedded') expect(open(backups)).toEqual([]);
    const elsewhere = join(folder.path, 'elsewhere');
    for (const place of [
      elsewhere,
      `File('${elsewhere}')`,
      "S3('http://127.0.0.1:1/x','a','b')",
      "Disk('default','x')",
      `local/../elsewhere`,
      `local/${'x'.repeat(200)}`,
    ]) {
      const reply = await call('backup', { action: 'create', place });
      expect(reply.error).toMatchObject({
        status: 400,
        code: 'invalid_request',
        message: expect.stringMatching(/^the arguments are wrong: place has a form that is not allowed/) as string,
      });
    }
    expect((await call('backup', { action: 'create', place: 'other/one' })).error).toMatchObject({
      status: 409,
      message: 'there is no place other; BACKUP_PLACES has local',
    });
    expect(existsSync(elsewhere)).toBe(false);
    expect(readdirSync(backups)).toEqual(['one']);
  });

  test('no error has a word of the engine, or tells where it is', async () => {
    const replies = await Promise.all([
      call('backup', { action: 'create', place: 'local/one' }),
      call('backup', { action: 'create', place: 'local/two', base: 'local/none' }),
      call('backup', { action: 'restore', place: 'local/none' }),
      call('endpoints', {
        action: 'run',
        endpoint: 'usage.api-counts',
        parameters: { project: '(', interval: 'hourly' },
      }),
      call('rollup', { action: 'rebuild', from: 0, to: 1, rollup: 'none', acceptLoss: false }),
      call('keys', { action: 'create', name: 'x', scopes: ['nothing'], projects: [], expires_at: null }),
      call('dead-letters', { action: 'show', at: { topic: 'none', partition: 0, offset: '0' } }),
    ]);
    expect(replies.map((reply) => reply.status)).toEqual([409, 409, 409, 400, 400, 400, 409]);
    const server = face === undefined ? 'embedded has' : new URL(face.url).host;
    for (const { text } of replies) {
      expect(text).not.toMatch(/DB::|Code: \d|Exception|SELECT|version \d\d\.|sluice-test/);
      expect(text).not.toContain(server);
    }
    expect(sluice.stderr()).toContain('backup_failed');
  });

  test('commands with bounds of any size stop nobody', async () => {
    const attack = async (): Promise<void> => {
      const statuses = await Promise.all([
        ...[
          [-1e300, 1e300],
          [0, 1e300],
          [0, Number.MAX_SAFE_INTEGER],
          [0, 4_291_747_201],
        ].map(([from, to]) => call('rollup', { action: 'rebuild', from, to, rollup: null, acceptLoss: false })),
        call('rollup', { action: 'rebuild', from: 0, to: 4_291_747_200, rollup: null, acceptLoss: false }),
        call('dead-letters', { action: 'list', filter: {}, limit: 1_000_000 }),
        call('dead-letters', { action: 'list', filter: {}, limit: 1e300 }),
        call('reconcile', {}),
      ]);
      expect(statuses.map((reply) => reply.status)).toEqual([400, 400, 400, 400, 200, 200, 400, 200]);
    };
    await whileAlive(sluice.address, attack);
  });

  test('a command finds the service by its settings and gets its proof', async () => {
    const account = startScript('ingest', settings, ['paused', '--json']);
    // of a server, a command asks without the service
    const rollups = startScript('rollup', settings, ['status', '--json', '--url', sluice.address]);
    expect(await account.exited, account.stderr()).toBe(0);
    expect(await rollups.exited, rollups.stderr()).toBe(0);
    expect(JSON.parse(account.stdout())).toEqual({ paused: [] });
    const wrong = await send(sluice.address, '/proof?nonce=7');
    expect(wrong.error).toMatchObject({ status: 400, code: 'invalid_parameter' });
  });
});
