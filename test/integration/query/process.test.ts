import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openTestFace, temporaryFolder } from '../../harness/clickhouse.ts';
import { migrate } from '../../../common/clickhouse/migrations.ts';
import { startScript, type Service } from '../../harness/service.ts';
import { waitFor } from '../../harness/wait-for.ts';
import { API_KEY, logger, send } from './service.ts';

/** `npm run query` as an operator meets it. */
type Face = Awaited<ReturnType<typeof openTestFace>>;
let face: Face;
const folder = temporaryFolder();
beforeAll(async () => {
  face = await openTestFace();
});
afterAll(async () => {
  await face?.close();
  folder.remove();
});

const PORT = '14831';
const address = `http://127.0.0.1:${PORT}`;
const settings = (): Record<string, string> => ({
  CLICKHOUSE_URL: face.env.CLICKHOUSE_URL ?? '',
  DATA_DIR: folder.path,
  PORT,
  API_KEY,
});
const status = (): Promise<number> =>
  send(address, '/api/endpoints/logs.all?project=p', { headers: { 'x-api-key': API_KEY } }).then(
    (r) => r.status,
    () => 0,
  );

describe('npm run query', () => {
  it('listens at once, answers 503 until ClickHouse and its schema are there, then 200; SIGTERM ends it with 0', async () => {
    await face.face.down();
    const service: Service = startScript('query', settings());
    await waitFor(async () => (await status()) === 503, 20_000, 'it listens');
    expect((await send(address, '/livez')).status).toBe(200);
    expect((await send(address, '/readyz')).status).toBe(503);
    await face.face.up();
    await waitFor(
      () => service.stderr().includes('waiting_for_schema'),
      20_000,
      'it says that it waits for the schema',
    );
    expect(await status()).toBe(503);
    await migrate(face.clickhouse, logger);
    await waitFor(async () => (await status()) === 200, 20_000, 'it answers');
    await waitFor(async () => (await send(address, '/readyz')).status === 200, 10_000, 'it is ready');
    const from = performance.now();
    expect(await service.end()).toBe(0);
    expect(performance.now() - from).toBeLessThan(10_000);
    expect(service.stderr()).not.toContain(API_KEY);
  });

  it('says every mistake at once, and in one line what is in the way', async () => {
    const wrong = startScript('query', { ...settings(), PORT: 'x', QUERY_CONCURRENCY: '0', REDIS_URL: 'http://x' });
    expect(await wrong.exited).toBe(78);
    for (const name of ['PORT', 'QUERY_CONCURRENCY', 'REDIS_URL']) expect(wrong.stderr()).toContain(name);
    const alone = startScript('query', { DATA_DIR: folder.path, PORT });
    expect(await alone.exited).toBe(78);
    expect(alone.stderr().trim()).toBe(
      'sluice: npm run query needs CLICKHOUSE_URL; npm start runs everything in one process without it',
    );
    const first = startScript('query', settings());
    await waitFor(async () => (await status()) === 200, 20_000, 'it answers');
    const second = startScript('query', settings());
    expect(await second.exited).toBe(1);
    expect(
      second
        .stderr()
        .split('\n')
        .filter((l) => l.startsWith('sluice: ')),
    ).toEqual([`sluice: port ${PORT} on 127.0.0.1 is in use; stop the program that listens there, or set PORT`]);
    expect(second.stderr()).not.toMatch(/^\s+at /m);
    await first.end();
  });
});
