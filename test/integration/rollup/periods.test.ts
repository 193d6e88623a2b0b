import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Read } from '../../../common/clickhouse/clickhouse.ts';
import { readRollups } from '../../../services/rollup/period/catalogue.ts';
import { admitNew } from '../../../services/rollup/history.ts';
import { beginToday } from '../../../services/rollup/period/periods.ts';
import { differencesOf } from '../../../services/rollup/repairs.ts';
import { edgeEvent, invocationEvent, openWorld, type World } from './world.ts';

// Answers look only at the periods that can have something of their window: every row of an event at X has period >=
// the start of the day of X - 1 h.

const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;
const MINUTE_MS = 60_000;
const MIDNIGHT = Date.parse('2028-03-01T00:00:00Z');
const REF = 'abcdefghijklmnopqrst';

/** span and width of a bucket */
const SERIES: Readonly<Record<string, readonly [span: number, width: number]>> = {
  '5min': [5 * MINUTE_MS, 1000],
  '15min': [15 * MINUTE_MS, MINUTE_MS],
  '1hr': [HOUR_MS, MINUTE_MS],
  '1day': [DAY_MS, HOUR_MS],
  '7day': [7 * DAY_MS, DAY_MS],
};
const WINDOWS: Readonly<Record<string, number>> = {
  minutely: HOUR_MS,
  '15min': 15 * MINUTE_MS,
  '30min': 30 * MINUTE_MS,
  '3hr': 3 * HOUR_MS,
  hourly: HOUR_MS,
  '1day': DAY_MS,
  '3day': 3 * DAY_MS,
  daily: 7 * DAY_MS,
};

describe('periods', { timeout: 120_000 }, () => {
  let world: World;

  beforeAll(async () => {
    world = await openWorld({ now: MIDNIGHT, migrated: false });
  });
  afterAll(() => world.close());

  async function send(at: number, evaluatedAt: number): Promise<void> {
    world.now = evaluatedAt;
    await beginToday(world.context);
    await world.send('edge_logs', [
      edgeEvent(at, `https://${REF}.supabase.co/rest/v1/t`),
      edgeEvent(
        at,
        `https://${REF}.supabase.co/rest/v1/${Array.from({ length: 65 }, (_, i) => String.fromCharCode(97 + (i % 26)).repeat(20 + Math.floor(i / 26))).join('/')}`,
      ),
    ]);
    await world.send('function_edge_logs', [invocationEvent(at, REF, 'f')]);
  }
  const sum = (rows: Record<string, unknown>[], column: string): number =>
    rows.reduce((total, row) => total + Number(row[column]), 0);
  const requests = async (interval: string, now: number): Promise<number> =>
    sum(await world.ask('usage.api-counts', { project: REF, interval }, now), 'total_rest_requests');
  const invocations = async (interval: string, now: number): Promise<number> =>
    sum(await world.ask('functions.invocation-stats', { project: REF, interval }, now), 'count');

  describe('of a window', () => {
    /** judged as early as may be: in the period that ends with the hour before it */
    const AHEAD = MIDNIGHT + HOUR_MS - 1;

    beforeAll(async () => {
      await world.reset({ now: MIDNIGHT - 20 * DAY_MS });
      await admitNew(world.context);
      for (let day = 20; day > 0; day--)
        await send(MIDNIGHT - day * DAY_MS - 2 * HOUR_MS, MIDNIGHT - day * DAY_MS - 2 * HOUR_MS);
      await send(AHEAD, AHEAD - HOUR_MS);
      await send(AHEAD, AHEAD + 5 * DAY_MS);
    });

    test.each(Object.entries(SERIES))(
      'functions.invocation-stats %s: what was judged an hour before its time, and days after it, is in it',
      async (interval, [span, width]) => {
        const start = Math.floor(AHEAD / width) * width;
        expect(await invocations(interval, start + span)).toBe(2);
        expect(await invocations(interval, start + span + width)).toBe(0);
      },
    );

    test.each(Object.entries(WINDOWS))(
      'usage.api-counts %s: what was judged an hour before its time, and days after it, is in it',
      async (interval, span) => {
        // of the window's first minute, first hour and first instant: minutes, hours, single events; and of each one
        // with too many references
        for (const start of [AHEAD - MINUTE_MS + 1, MIDNIGHT, AHEAD])
          expect(await requests(interval, start + span), new Date(start).toISOString()).toBe(4);
        expect(await requests(interval, AHEAD + 1 + span)).toBe(0);
      },
    );

    // what is judged days later may be of any window before it
    test.each<[string, string, number, string[]]>([
      ['functions.invocation-stats', '15min', 1, ['function_invocations_v1']],
      ['functions.invocation-stats', '1day', 2, ['function_invocations_v1']],
      ['functions.invocation-stats', '7day', 9, ['function_invocations_v1']],
      ['usage.api-counts', 'minutely', 1, ['api_requests_v1']],
      ['usage.api-counts', 'daily', 8, ['api_requests_v1']],
    ])(
      '%s %s: %i of 22 parts are looked at, the rest is of older periods',
      async (endpoint, interval, parts, tables) => {
        const looked = await world.explainPartitions(
          endpoint,
          { project: REF, interval },
          MIDNIGHT + 12 * HOUR_MS + 500,
        );
        expect(looked.toSorted((a, b) => (a.table < b.table ? -1 : 1))).toEqual(
          tables.map((table) => ({ table, parts, of: 22 })),
        );
      },
    );

    test('the audit of a closed minute opens no older period', async () => {
      const { clickhouse } = world;
      const statements: string[] = [];
      const context = {
        ...world.context,
        clickhouse: {
          ...clickhouse,
          read: (read: Read) => {
            statements.push(read.sql);
            return clickhouse.read(read);
          },
        },
      };
      const minute = (MIDNIGHT + HOUR_MS - MINUTE_MS) / 1000;
      for (const rollup of await readRollups(clickhouse)) {
        statements.length = 0;
        const found = await differencesOf(context, rollup, undefined, { from: minute, to: minute + 60 }, 60);
        expect(found).toEqual([]);
        const compared = statements.filter((sql) => sql.includes('fingerprint'));
        expect(compared).toHaveLength(1);
        const reads = await world.select<{ table: string; parts: number }>(`EXPLAIN ESTIMATE ${compared[0]!}`);
        const { parts } = reads.find(({ table }) => table === `${rollup.name}_v1`)!;
        // the period in which it can have been judged first, and the one after five days
        expect(parts).toBe(2);
      }
    });
  });
});
