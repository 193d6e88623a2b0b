import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { startFace } from '../../harness/clickhouse-face.ts';
import { temporaryFolder } from '../../harness/clickhouse.ts';
import { waitFor } from '../../harness/wait-for.ts';

/** A process ends when it is told to, whatever its native threads do. */
const PROCESS = fileURLToPath(new URL('hanging-process.ts', import.meta.url));
const folders: ReturnType<typeof temporaryFolder>[] = [];
let child: ChildProcess | undefined;
afterEach(() => child?.kill('SIGKILL'));
afterAll(() => {
  for (const folder of folders) folder.remove();
});

async function hanging(url?: string): Promise<{
  exited: Promise<[number | null, NodeJS.Signals | null]>;
  signal: (name: NodeJS.Signals) => void;
  output: () => string;
}> {
  const folder = temporaryFolder();
  folders.push(folder);
  const started = spawn(process.execPath, [PROCESS, folder.path, ...(url === undefined ? [] : [url])], {
    env: { ...process.env, UV_THREADPOOL_SIZE: '16' },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  child = started;
  let output = '';
  for (const stream of [started.stdout, started.stderr])
    stream.on('data', (chunk: Buffer) => {
      output += chunk.toString();
    });
  const exited = new Promise<[number | null, NodeJS.Signals | null]>((resolve) => {
    started.once('exit', (code, name) => resolve([code, name]));
  });
  await waitFor(() => output.includes('hanging\n'), 30_000, 'its engine hangs');
  return { exited, signal: (name) => started.kill(name), output: () => output };
}

describe('a process with a native thread that does not end', () => {
  it('ends itself within 10 s of SIGTERM, with 0', async () => {
    const { exited, signal, output } = await hanging();
    signal('SIGTERM');
    const from = performance.now();
    expect(await exited).toEqual([0, null]);
    const seconds = (performance.now() - from) / 1000;
    expect([seconds, seconds > 5, seconds < 10]).toEqual([seconds, true, true]);
    expect(output()).toContain('stop_deadline_passed');
  });

  it('ends itself at once at a second signal, more than a second later', async () => {
    const { exited, signal } = await hanging();
    signal('SIGTERM');
    const first = performance.now();
    await waitFor(() => performance.now() - first > 1_100, 5_000, 'a second has passed');
    const from = performance.now();
    signal('SIGTERM');
    expect(await exited).toEqual([130, null]);
    expect(performance.now() - from).toBeLessThan(2_000);
  });
});

it('a process whose server never answers ends within 10 s of SIGTERM, with 0', async () => {
  const folder = temporaryFolder();
  folders.push(folder);
  const face = await startFace({ dataDir: folder.path, password: 'secret' });
  try {
    await face.inject({ match: 'materialize', action: 'hang', times: 100 });
    const { exited, signal, output } = await hanging(face.url);
    signal('SIGTERM');
    const from = performance.now();
    expect(await exited).toEqual([0, null]);
    expect(performance.now() - from).toBeLessThan(10_000);
    expect(output()).toContain('"msg":"stopping"');
  } finally {
    await face.stop();
  }
});

it('a process that has nothing else to do closes its engine to the end, with the process for texts of callers', async () => {
  const folder = temporaryFolder();
  folders.push(folder);
  const module = (path: string): string => JSON.stringify(new URL(`../../../common/${path}`, import.meta.url).href);
  const text = `
    import { openEmbedded } from ${module('clickhouse/embedded/embedded.ts')};
    import { createLogger } from ${module('logger.ts')};
    const engine = await openEmbedded({ dataDir: ${JSON.stringify(folder.path)}, logger: createLogger('warn') });
    await engine.read({ sql: 'SELECT 1', format: 'TSV', isolated: true });
    await engine.close();
    process.stdout.write('closed');`;
  const run = promisify(execFile)(process.execPath, ['--input-type=module-typescript', '--eval', text], {
    env: { ...process.env, UV_THREADPOOL_SIZE: '16' },
  });
  expect((await run).stdout).toBe('closed');
});
