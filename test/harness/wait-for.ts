import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Waits until the condition gives something other than false, undefined or null, and gives that. Asks again after
 * everyMs. By default it asks after 25 ms, and after a slow answer four times as long as that took (at most 250 ms): most
 * of the time nobody asks.
 * Throws after deadlineMs, saying what was waited for and the last error of the condition, if it threw.
 */
export async function waitFor<T>(
  condition: () => T | Promise<T>,
  deadlineMs: number,
  what: string,
  everyMs?: number,
): Promise<Exclude<T, false | undefined | null>> {
  const until = performance.now() + deadlineMs;
  let last: unknown;
  for (;;) {
    const from = performance.now();
    try {
      last = undefined;
      const value = await condition();
      if (value !== false && value !== undefined && value !== null)
        return value as Exclude<T, false | undefined | null>;
    } catch (error) {
      last = error;
    }
    const now = performance.now();
    if (now > until)
      throw new Error(`not within ${deadlineMs} ms: ${what}${last instanceof Error ? ` (${last.message})` : ''}`, {
        cause: last,
      });
    await sleep(everyMs ?? Math.min(250, Math.max(25, 4 * (now - from))));
  }
}
