import { spawn, type ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
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

async function hanging(): Promise<{
  exited: Promise<[number | null, NodeJS.Signals | null]>;
  signal: (name: NodeJS.Signals) => void;
  output: () => string;
}> {
  const folder = temporaryFolder();
  folders.push(folder);
  const started = spawn(process.execPath, [PROCESS, folder.path], {
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
    const from = performance.now();
    signal('SIGTERM');
    expect(await exited).toEqual([0, null]);
    const seconds = (performance.now() - from) / 1000;
    expect([seconds > 5, seconds < 10]).toEqual([true, true]);
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
