import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { check } from './check.ts';
import { mutants } from './mutants.ts';
import type { Counts } from './world.ts';

/** the rarest event below, a part that is deduplicated, comes 15 times in 1,000 schedules: 90 times in these */
const SCHEDULES = 6_000;
/** found after 1 to 400 on average; without the doubt of one's membership after 1,000, without retention after 1,700 */
const MUTANT_SCHEDULES = 15_000;
const seed = Date.now() % 1_000_000_000;

/** 6,000 schedules take 13 s on an idle core */
const TIMEOUT_MS = 300_000;

test(
  `each message ends exactly once in ${SCHEDULES} schedules of crashes, takeovers, delays and restores (seed ${seed})`,
  async () => {
    const counts: Counts = {};
    const failure = await check({ seed, runs: SCHEDULES, mutation: {}, counts });
    if (failure !== undefined)
      throw new Error(`npm run simulate -- --seed ${failure.seed} --path ${failure.path}`, { cause: failure.error });
    // the schedules go where it is dangerous
    for (const what of [
      'batch_recovered',
      'orphan_rows_found',
      'topic_recreated',
      'offsets_gone',
      'commits refused',
      'inserts given up by the client',
      'inserts killed',
      'repairs requested',
      'parts deduplicated',
      'restored',
      'partition_paused',
      'waiting_for_group',
      'logs truncated',
    ]) {
      expect(counts[what], what).toBeGreaterThan(10);
    }
  },
  TIMEOUT_MS,
);

describe('a loss or a doubling is found with one rule taken out', () => {
  test.each(Object.entries(mutants))(
    `%s (seed ${seed})`,
    async (_, mutation) => {
      const failure = await check({ seed, runs: MUTANT_SCHEDULES, mutation, counts: {} });
      expect(String(failure?.error)).toMatch(
        /^Error: (lost|doubled|ledger |rollup1[mh] |offset .* is in no batch of the ledger)/,
      );
    },
    TIMEOUT_MS,
  );
});

test.each([
  ['--help', 0, /^npm run simulate -- \[--runs N\]/],
  ['--runs=many', 1, /^simulate: --runs takes a whole number; --help says more\n$/],
  ['--mutant=unknown', 1, /^simulate: --mutant takes one of no-intent, .*; --help says more\n$/],
  ['--unknown', 1, /^simulate: Unknown option '--unknown'.*\n$/],
])(
  'the command answers %s in words',
  (argument, code, says) => {
    const main = fileURLToPath(new URL('main.ts', import.meta.url));
    const { status, stdout, stderr } = spawnSync(process.execPath, [main, argument], { encoding: 'utf8' });
    expect({ status, text: code === 0 ? stdout : stderr }).toEqual({
      status: code,
      text: expect.stringMatching(says) as string,
    });
  },
  60_000,
);
