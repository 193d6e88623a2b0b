import { expect, test } from 'vitest';
import type { Read, Statement } from '../../../common/clickhouse/clickhouse.ts';
import { leastPeriod } from '../../../common/evaluate/event.ts';
import { createLogger } from '../../../common/logger.ts';
import { statements } from './catalogue.ts';
import type { Context } from './context.ts';
import { DAY, HOUR } from './time.ts';
import { beginToday, closePeriod, isExpired } from './periods.ts';

const MIDNIGHT = 20_000 * DAY;

/** A register whose newest period is this one, `seconds` after midnight. */
function registerWith(newest: number, seconds: number, engineSeconds = seconds) {
  const did: unknown[] = [];
  const context = {
    clickhouse: {
      async read({ sql }: Read) {
        did.push(sql === statements.newestPeriod ? 'read' : sql);
        return { body: Buffer.from(JSON.stringify({ begin: newest })) };
      },
      execute: async ({ params }: Statement) => void did.push(params?.['begin']),
    },
    clock: () => (MIDNIGHT + seconds) * 1000,
    engineClock: async () => (MIDNIGHT + engineSeconds) * 1000,
    logger: createLogger('silent'),
  } as unknown as Context;
  return { context, did };
}

test('a period is closed by a newer one, which begins now, and never twice', async () => {
  for (const [period, newest, seconds, begins] of [
    [MIDNIGHT, MIDNIGHT, 60, MIDNIGHT + 60],
    // the same second: two periods never have the same begin
    [MIDNIGHT + 60, MIDNIGHT + 60, 60, MIDNIGHT + 61],
    // the register is ahead of the clock: all processes follow it already
    [MIDNIGHT + 100 * DAY, MIDNIGHT + 100 * DAY, 60, MIDNIGHT + 100 * DAY + 1],
    // it is closed already
    [MIDNIGHT, MIDNIGHT + 1, 60, undefined],
    [MIDNIGHT - DAY, MIDNIGHT, 60, undefined],
  ] as const) {
    const { context, did } = registerWith(newest, seconds);
    await closePeriod(context, period);
    expect(did).toEqual(begins === undefined ? ['read'] : ['read', begins]);
  }
});

test('a period ahead of the clock that is not in the register stays open', async () => {
  const { context, did } = registerWith(MIDNIGHT + 60, 60);
  await closePeriod(context, MIDNIGHT + 61);
  expect(did).toEqual(['read']);
});

test('a clock that is ahead of the other one begins no period of the future, whichever of the two it is', async () => {
  for (const [ours, engines] of [
    [100 * DAY, 60],
    [60, 100 * DAY],
  ] as const) {
    const closing = registerWith(MIDNIGHT, ours, engines);
    await closePeriod(closing.context, MIDNIGHT);
    expect(closing.did).toEqual(['read', MIDNIGHT + 60]);
    const beginning = registerWith(MIDNIGHT, ours, engines);
    expect(await beginToday(beginning.context)).toBe(MIDNIGHT);
    expect(beginning.did).toEqual(['read']);
  }
});

test('a period begins at each midnight, once, and nothing is read on the same day', async () => {
  for (const [known, newest, result, expected] of [
    [0, MIDNIGHT - DAY, MIDNIGHT, ['read', MIDNIGHT]],
    [MIDNIGHT - 1, MIDNIGHT, MIDNIGHT, ['read']],
    [0, MIDNIGHT + 5, MIDNIGHT + 5, ['read']],
    [MIDNIGHT, MIDNIGHT, MIDNIGHT, []],
    [MIDNIGHT + DAY, MIDNIGHT, MIDNIGHT + DAY, []],
  ] as const) {
    const { context, did } = registerWith(newest, 10);
    expect(await beginToday(context, known)).toBe(result);
    expect(did).toEqual(expected);
  }
});

test('a period has events of up to a day and an hour, and expires with the youngest of them', () => {
  expect([leastPeriod(MIDNIGHT + HOUR - 1), leastPeriod(MIDNIGHT + HOUR), leastPeriod(0)]).toEqual([
    MIDNIGHT - DAY,
    MIDNIGHT,
    0,
  ]);
  const expiresAt = MIDNIGHT + DAY + HOUR + 30 * DAY;
  expect([isExpired(MIDNIGHT, 30, expiresAt - 1), isExpired(MIDNIGHT, 30, expiresAt)]).toEqual([false, true]);
});
