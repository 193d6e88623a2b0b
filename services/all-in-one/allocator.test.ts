import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

const { scripts } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
  scripts: Record<string, string>;
};

/** Buffers of 2 MB between small ones that stay, as batches come and go. Prints the MB that are resident after it. */
const PROGRAM = `
  const { readFileSync } = require('node:fs');
  const { setTimeout: sleep } = require('node:timers/promises');
  const anonymous = () => Number(/RssAnon:\\s+(\\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))[1]) / 1024;
  const before = anonymous();
  const stay = [];
  (async () => {
    for (let round = 0; round < 2; round++) {
      for (let i = 0; i < 60; i++) {
        stay.push(Buffer.allocUnsafeSlow(2 * 1024 * 1024).fill(1));
        stay.push(Buffer.allocUnsafeSlow(64 * 1024).fill(1));
      }
      for (let i = 0; i < stay.length; i++) if (stay[i]?.length > 64 * 1024) stay[i] = undefined;
      gc();
      // V8 frees in another thread
      await sleep(50);
    }
    console.log(Math.round(anonymous() - before));
  })();`;

function residentWith(script: string): number {
  const set = script.split(' ').filter((word) => word.startsWith('MALLOC_'));
  const env = Object.fromEntries(set.map((word) => word.split('=') as [string, string]));
  return Number(execFileSync(process.execPath, ['--expose-gc', '-e', PROGRAM], { env, encoding: 'utf8' }));
}

// Freeing a mapped piece makes glibc take later ones of its size from its heap, which never shrinks below a piece that
// stays. A fixed MALLOC_MMAP_THRESHOLD_ keeps pieces from 1 MB on out of it. No other C library has this setting.
test.runIf(process.platform === 'linux')('memory of batches returns to the system when they are written', () => {
  // without the setting
  expect(residentWith('')).toBeGreaterThan(60);
  for (const name of ['start', 'ingest']) expect(residentWith(scripts[name]!), name).toBeLessThan(40);
});
