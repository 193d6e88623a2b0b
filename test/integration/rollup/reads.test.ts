import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { admitNew, nextStep } from '../../../services/rollup/history.ts';
import { edgeEvent, invocationEvent, openWorld, type World } from './world.ts';

// What answers are made of: the widest buckets that are exact, single events at the edges, raw only where nothing else
// can say.

const NOW = Date.parse('2028-03-01T12:34:56.789Z');
const DAY_MS = 86_400_000;
const REF = 'abcdefghijklmnopqrst';

describe('reading', { timeout: 120_000 }, () => {
  let world: World;

  beforeAll(async () => {
    world = await openWorld({ now: NOW - 8 * DAY_MS, migrated: false });
  });
  afterAll(() => world.close());

  /** Eight days with something of every minute in ten, `times` as much each time; of other projects too. */
  async function traffic(times: number): Promise<void> {
    for (let day = 8; day >= 0; day--) {
      world.now = NOW - day * DAY_MS;
      const at = Array.from({ length: 144 * times }, (_, i) => world.now - Math.floor((i * 600_000) / times) - 1);
      await world.send(
        'edge_logs',
        at.flatMap((t, i) => [
          edgeEvent(t, `https://${REF}.supabase.co/rest/v1/t`),
          edgeEvent(t, `https://${String.fromCharCode(97 + (i % 26)).repeat(20)}.supabase.co/auth/v1/t`),
        ]),
      );
      await world.send(
        'function_edge_logs',
        at.flatMap((t, i) => [invocationEvent(t, REF, `f${i % 3}`), invocationEvent(t, `other${i % 26}`, 'f')]),
      );
    }
  }

  /** Tables that an answer reads rows of, with the most rows that it may read there, by the engine's own account. */
  async function tables(endpoint: string, params: Record<string, string>): Promise<string[]> {
    return [...new Set((await world.explain(endpoint, params, NOW)).map((row) => row.table))].toSorted();
  }

  const functionCases: [interval: string, tables: string[]][] = [
    ['5min', ['function_edge_logs']],
    ['15min', ['function_invocations_v1']],
    ['1hr', ['function_invocations_v1']],
    ['1day', ['function_invocations_v1']],
    ['7day', ['function_invocations_v1']],
  ];
  const requestCases: [interval: string, tables: string[]][] = [
    ['minutely', ['api_requests_v1']],
    ['15min', ['api_requests_v1']],
    ['3hr', ['api_requests_v1']],
    ['hourly', ['api_requests_v1']],
    ['1day', ['api_requests_v1']],
    ['3day', ['api_requests_v1']],
    ['daily', ['api_requests_v1']],
  ];

  test('while history is built, raw only for what is not covered yet', async () => {
    await traffic(1);
    await world.makeRollups();
    await admitNew(world.context);
    world.now += 600_000;
    expect(await tables('usage.api-counts', { project: REF, interval: 'daily' })).toContain('edge_logs');
    const rawRows: number[] = [];
    for (let ms = await nextStep(world.context); ms !== undefined; ms = await nextStep(world.context)) {
      await world.context.wait(ms);
      const estimate = await world.explain('functions.invocation-stats', { project: REF, interval: '7day' }, NOW);
      rawRows.push(
        estimate.filter((row) => row.table === 'function_edge_logs').reduce((sum, row) => sum + row.rows, 0),
      );
    }
    expect(rawRows).toEqual(rawRows.toSorted((a, b) => b - a));
    expect(rawRows[0]).toBeGreaterThan(0);
    expect(rawRows.at(-1)).toBe(0);
  });

  test.each(functionCases)('functions.invocation-stats %s: %s', async (interval, expected) => {
    expect(await tables('functions.invocation-stats', { project: REF, interval })).toEqual(expected);
    expect(await tables('functions.invocation-stats', { project: REF, interval, function_id: 'f1' })).toEqual(expected);
  });

  test.each(requestCases)('usage.api-counts of a reference, %s: %s', async (interval, expected) => {
    expect(expected).toEqual(expect.arrayContaining(await tables('usage.api-counts', { project: REF, interval })));
  });

  test('usage.api-counts of a pattern scans the window', async () => {
    expect(await tables('usage.api-counts', { project: `${REF}.`, interval: 'daily' })).toEqual(['edge_logs']);
  });

  // single events of the first hour of a window are read, and grow with the reference's own traffic of that hour
  test('what is read stays where it is when the traffic grows fivefold, but for the single events at the start of a window', async () => {
    const calls: [string, Record<string, string>][] = [
      ...functionCases
        .slice(1)
        .map(([interval]): [string, Record<string, string>] => [
          'functions.invocation-stats',
          { project: REF, interval },
        ]),
      ...requestCases.map(([interval]): [string, Record<string, string>] => [
        'usage.api-counts',
        { project: REF, interval },
      ]),
    ];
    const counts = async (): Promise<number[]> => {
      for (const table of ['function_invocations', 'api_requests'])
        await world.clickhouse.execute({ sql: `OPTIMIZE TABLE ${table}_v1 FINAL` });
      const found: number[] = [];
      for (const [endpoint, params] of calls)
        found.push((await world.explain(endpoint, params, NOW)).reduce((sum, row) => sum + row.marks, 0));
      return found;
    };
    const before = await counts();
    expect(Math.max(...before)).toBeLessThan(60);
    for (let i = 0; i < 4; i++) await traffic(1);
    const after = await counts();
    after.forEach((marks, i) =>
      expect(marks, `${calls[i]![0]} ${JSON.stringify(calls[i]![1])}`).toBeLessThanOrEqual(before[i]! + 4),
    );
  });

  test('an insert stores what its views make merged, whatever a profile says', async () => {
    await world.reset({ now: NOW });
    await world.makeRollups();
    await admitNew(world.context);
    const at = Array.from({ length: 20 }, (_, i) => NOW - i);
    await world.send(
      'edge_logs',
      at.map((t) => edgeEvent(t, `https://${REF}.supabase.co/rest/v1/t`)),
    );
    await world.send(
      'function_edge_logs',
      at.map((t) => invocationEvent(t, REF, 'f')),
    );
    for (const [table, widths] of [
      ['api_requests_v1', [60, 3600]],
      ['function_invocations_v1', [60, 3600, 86_400]],
    ] as const)
      expect(
        await world.select(
          `SELECT width, toUInt32(count()) AS rows FROM ${table} WHERE width > 0 GROUP BY width ORDER BY width`,
        ),
        table,
      ).toEqual(widths.map((width) => ({ width, rows: 1 })));
  });
});
