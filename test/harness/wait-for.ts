import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Waits until the condition gives something other than false, undefined or null, and gives that. Asks again after
 * everyMs.
 * Throws after deadlineMs, saying what was waited for and the last error of the condition, if it threw.
 */
export async function waitFor<T>(
  condition: () => T | Promise<T>,
  deadlineMs: number,
  what: string,
  everyMs = 25,
): Promise<Exclude<T, false | undefined | null>> {
  const until = performance.now() + deadlineMs;
  let last: unknown;
  for (;;) {
    try {
      last = undefined;
      const value = await condition();
      if (value !== false && value !== undefined && value !== null)
        return value as Exclude<T, false | undefined | null>;
    } catch (error) {
      last = error;
    }
    if (performance.now() > until)
      throw new Error(`not within ${deadlineMs} ms: ${what}${last instanceof Error ? ` (${last.message})` : ''}`, {
        cause: last,
      });
    await sleep(everyMs);
  }
}
