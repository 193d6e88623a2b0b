import { setTimeout as sleep } from 'node:timers/promises';
import { fresh, INTEGERS_AS_TEXT, select } from '../../../common/clickhouse/clickhouse.ts';
import type { Logger } from '../../../common/logger.ts';
import { readDeadLetter, replayDeadLetter, type LetterPlace, type ReplayOptions } from './dead-letters.ts';
import { statements } from '../store/statements.ts';

/** A younger replay may still run. It would be completed too, but its insert would be ended and its rollups rebuilt. */
const OPEN_FOR_SECONDS = 30;
const EVERY_MS = 30_000;
/** A letter that is refused is tried again after so many rounds, an hour: its row may have come later. */
const REFUSED_FOR_ROUNDS = 120;
/** There may be millions of replays. */
const IN_ORDER = { ...INTEGERS_AS_TEXT, optimize_aggregation_in_order: 1 };

/**
 * Completes replays of dead letters that were announced and not done, because the process that made them was killed. It
 * does so at once and every 30 seconds, until the signal fires. Until then the row of such a replay keeps its period
 * from being built. A letter that today's settings refuse is tried once an hour: to look for its row takes a long read.
 */
export async function keepReplaysComplete(options: ReplayOptions, logger: Logger, signal: AbortSignal): Promise<void> {
  const refused = new Set<string>();
  const reader = fresh(options.clickhouse, ['dead_letter_replays']);
  const letters = fresh(options.clickhouse, ['dead_letters']);
  const complete = async (letter: LetterPlace): Promise<void> => {
    const key = Object.values(letter).join(' ');
    if (refused.has(key) || signal.aborted) return;
    const content = await readDeadLetter(letters, letter);
    const outcome = content === undefined ? undefined : await replayDeadLetter(options, content);
    if (outcome === 'stored') return logger.info(letter, 'replay_completed');
    if (outcome === 'unfinished') return;
    refused.add(key);
    logger.warn({ ...letter, outcome: outcome ?? 'expired' }, 'replay_not_completed');
  };
  // one that fails keeps no other from being completed
  const attempt = <T>(work: Promise<T>, fields: object): Promise<T | undefined> =>
    work.catch((error: unknown) => {
      const err = error instanceof Error ? error.message.split('\n')[0] : String(error);
      if (!signal.aborted) logger.warn({ ...fields, err, retry_in_ms: EVERY_MS }, 'replay_not_completed');
      return undefined;
    });
  let round = 0;
  do {
    if (round++ % REFUSED_FOR_ROUNDS === 0) refused.clear();
    const open = select<LetterPlace>(reader, statements.openReplays, { seconds: OPEN_FOR_SECONDS }, IN_ORDER);
    for (const letter of (await attempt(open, {})) ?? []) await attempt(complete(letter), letter);
  } while (await sleep(EVERY_MS, true, { signal, ref: false }).catch(() => false));
}
