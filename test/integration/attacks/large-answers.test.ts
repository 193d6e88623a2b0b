import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { migrate } from '../../../common/clickhouse/migrations.ts';
import { openTestEmbedded, openTestFace, type TestClickHouse } from '../../harness/clickhouse.ts';
import { openEmbedded } from '../../../common/clickhouse/embedded/embedded.ts';
import { waitFor } from '../../harness/wait-for.ts';
import { API_KEY, logger, send, type Reply } from '../query/service.ts';
import { whileAlive } from './alive.ts';

/** Pages of events of megabytes: they are read a few at a time, and never take the process with them. */
const NOW = Date.UTC(2026, 2, 1, 9, 0, 0);
const PROCESS = fileURLToPath(new URL('service-process.ts', import.meta.url));
const EVENT_BYTES = 4_900_000;
const MOST_RSS_MB = 1_200;
const LINES = { accept: 'application/x-ndjson' };
let test: TestClickHouse;
let child: ChildProcess;
let address = '';
let output = '';

const logs = (query: string, headers: Record<string, string> = {}): Promise<Reply> =>
  send(address, `/api/endpoints/logs.all?${query}`, { headers: { 'x-api-key': API_KEY, ...headers } });
const peakMb = (): number =>
  Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'))?.[1]) / 1024;

describe.each(['embedded', 'server'] as const)('%s', (mode) => {
  beforeAll(async () => {
    test = mode === 'embedded' ? await openTestEmbedded() : await openTestFace();
    await migrate(test.clickhouse, logger);
    // as ingest would store them, made in the engine: 250 MB of events take a minute to push
    const fill = async (project: string, count: number, first: number): Promise<void> => {
      for (let i = 0; i < count; i++) {
        await test.clickhouse.execute({
          sql: `INSERT INTO edge_logs (id, timestamp, project, message, kafka_partition, kafka_offset)
            SELECT {id:String}, fromUnixTimestamp64Milli({at:Int64}, 'UTC'), {project:String}, concat('{"metadata":{"text":"', hex(randomString({bytes:UInt32})), '"}}'), 0, {offset:Int64}`,
          params: { id: `e${i}`, at: NOW - i * 1000, project, bytes: EVENT_BYTES / 2, offset: first + i },
        });
      }
    };
    await fill('fits', 24, 0);
    await fill('large', 28, 24);
    // a folder has one process at a time
    if (mode === 'embedded') await test.clickhouse.close();
    child = spawn(process.execPath, [PROCESS, String(NOW)], {
      env: {
        ...process.env,
        ...test.env,
        UV_THREADPOOL_SIZE: '16',
        PORT: '0',
        API_KEY,
      },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    output = '';
    child.stdout?.on('data', (chunk: Buffer) => {
      output += chunk.toString();
    });
    address = await waitFor(() => /^http:\/\/\S+$/m.exec(output)?.[0], 60_000, 'it listens');
  });
  afterAll(async () => {
    if (child.exitCode === null) {
      const exited = once(child, 'exit');
      child.kill('SIGKILL');
      await exited;
    }
    // what closes a folder needs it open
    if (mode === 'embedded') await (await openEmbedded({ dataDir: test.env.DATA_DIR, logger })).close();
    await test.close().catch(() => undefined);
  });

  it('a page that is too large is a 504 that names its size, and is read a few entries at a time', async () => {
    const whole = await logs('project=large');
    expect([whole.status, whole.error.code, whole.error.message]).toEqual([
      504,
      'timeout',
      'the query exceeded its limit of size of the answer',
    ]);
    const page = await logs('project=large&limit=5');
    expect([page.status, page.rows.map((row) => row['id'])]).toEqual([200, ['e0', 'e1', 'e2', 'e3', 'e4']]);
    const one = await logs('project=large&limit=1', LINES);
    expect([one.status, one.text.endsWith('}\n'), (JSON.parse(one.text) as { id: string }).id]).toEqual([
      200,
      true,
      'e0',
    ]);
  });

  it('twenty callers at once get it whole, or are told when to come back; memory stays bounded', async () => {
    const attack = (): Promise<unknown[][]> =>
      Promise.all(
        Array.from({ length: 20 }, async (_, i) => {
          const { status, headers, body } = await logs('project=fits', i % 2 === 0 ? LINES : {});
          return [
            status,
            headers['retry-after'],
            status === 200 ? body.length > 24 * EVENT_BYTES : body.toString().includes('"code":"unavailable"'),
          ];
        }),
      );
    const replies = await whileAlive(address, attack);
    for (const reply of replies)
      expect([
        [200, undefined, true],
        [503, '5', true],
        [503, '1', true],
      ]).toContainEqual(reply);
    expect(replies.some(([status]) => status === 200)).toBe(true);
    const peak = Math.round(peakMb());
    expect([peak, peak < MOST_RSS_MB]).toEqual([peak, true]);
    expect((await logs('project=fits&limit=2')).rows).toHaveLength(2);
  });
});
