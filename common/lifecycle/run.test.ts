import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expect, test, vi } from 'vitest';

/** Returns the arguments of a process with this start. */
function processWith(start: string): string[] {
  const at = (name: string): string => JSON.stringify(new URL(name, import.meta.url).href);
  const source = `
    import { setTimeout as sleep } from 'node:timers/promises';
    import { StartError } from ${at('../errors.ts')};
    import { runProcess } from ${at('run.ts')};
    await runProcess(() => undefined, async (add, stopping) => {${start}});`;
  return ['--input-type=module-typescript', '--eval', source];
}

/** Runs a process with this start. Returns its exit code, what it wrote, and how long it took from `failing` on. */
async function run(start: string): Promise<{ code: unknown; said: string; ms: number }> {
  const child = spawn(process.execPath, processWith(start));
  let failedAt = 0;
  child.stdout.on('data', () => (failedAt ||= performance.now()));
  const [said, [code]] = await Promise.all([text(child.stderr), once(child, 'exit')]);
  return { code, said, ms: performance.now() - failedAt };
}

test('a component that fails during the start ends the start, and stops what has started', async () => {
  const { code, said, ms } = await run(`
    const say = (name) => ({ name, stop: async () => { process.stderr.write(name + ' stopped\\n'); } });
    add(say('first'));
    add({ ...say('second'), failed: sleep(200).then(() => {
      process.stdout.write('failing');
      throw new StartError('it broke');
    }) });
    await sleep(60_000, undefined, { signal: stopping });`);
  expect([code, said]).toEqual([1, 'sluice: it broke\nsecond stopped\nfirst stopped\n']);
  expect(ms).toBeLessThan(1_000);
}, 30_000);

test('a start that nothing ends does not keep what has started from being stopped', async () => {
  const { code, said, ms } = await run(`
    add({ name: 'broker', stop: async () => { process.stderr.write('broker stopped\\n'); } });
    process.stdout.write('failing');
    setTimeout(() => process.kill(process.pid, 'SIGTERM'), 200);
    await sleep(60_000);`);
  expect([code, said]).toEqual([0, 'broker stopped\n']);
  expect(ms).toBeLessThan(6_000);
}, 30_000);

/**
 * Runs a command in a terminal of its own, or as a background job of a shell there. When it says `running`, sends SIGHUP
 * and closes the terminal so many seconds later, which sends SIGHUP only to what is in the foreground.
 */
const IN_A_TERMINAL = `
import os, pty, signal, sys, time
place, seconds, *command = sys.argv[1:]
leader, terminal = pty.fork()
if leader == 0:
    job = os.fork() if place == "background" else 0
    if job == 0:
        if place == "background":
            os.setpgid(0, 0)
        os.execv(command[0], command)
    print("job", job, flush=True)
    os.waitpid(job, 0)
said = b""
while b"running" not in said:
    said += os.read(terminal, 1000)
os.kill(int(said.split()[1]) if place == "background" else leader, signal.SIGHUP)
time.sleep(float(seconds))
print(os.waitpid(leader, os.WNOHANG)[1])
os.close(terminal)
print(os.waitstatus_to_exitcode(os.waitpid(leader, 0)[1]))
`;

/** What a process in a terminal writes when it stops. */
async function inATerminal(
  place: 'foreground' | 'background',
  seconds: number,
): Promise<[said: string, stopped: string]> {
  const folder = mkdtempSync(join(tmpdir(), 'run-'));
  const file = join(folder, 'stopped');
  const start = processWith(`
    const { writeFileSync } = await import('node:fs');
    add({ name: 'broker', stop: async () => writeFileSync(${JSON.stringify(file)}, 'broker stopped') });
    setTimeout(() => {}, 20_000);
    process.stdout.write('running');`);
  const child = spawn('python3', ['-c', IN_A_TERMINAL, place, String(seconds), process.execPath, ...start]);
  const [said] = await Promise.all([text(child.stdout), once(child, 'exit')]);
  await vi.waitFor(() => expect(existsSync(file)).toBe(true), 5_000);
  const stopped = readFileSync(file, 'utf8');
  rmSync(folder, { recursive: true });
  return [said, stopped];
}

test('a closed terminal stops it, and SIGHUP by itself does not', async () => {
  expect(await inATerminal('foreground', 2)).toEqual(['0\n0\n', 'broker stopped']);
}, 30_000);

test('a terminal that is closed a moment after SIGHUP stops it too', async () => {
  expect(await inATerminal('background', 0.2)).toEqual(['0\n-1\n', 'broker stopped']);
}, 30_000);
