import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { expect, test } from 'vitest';

/** Runs a process with this start. Returns its exit code, what it wrote, and how long it took from `failing` on. */
async function run(start: string): Promise<{ code: unknown; said: string; ms: number }> {
  const at = (name: string): string => JSON.stringify(new URL(name, import.meta.url).href);
  const source = `
    import { setTimeout as sleep } from 'node:timers/promises';
    import { StartError } from ${at('../errors.ts')};
    import { runProcess } from ${at('run.ts')};
    await runProcess(() => undefined, async (add, stopping) => {${start}});`;
  const child = spawn(process.execPath, ['--input-type=module-typescript', '--eval', source]);
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
