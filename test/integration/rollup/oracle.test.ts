import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { contentOf, createTraffic, type Traffic, type TrafficEvent } from '../../../demo/traffic.ts';
import { urlShapes } from '../../../demo/urls.ts';
import { readRollups } from '../../../services/rollup/period/catalogue.ts';
import { DAY } from '../../../services/rollup/period/context.ts';
import { admitNew, nextStep } from '../../../services/rollup/history.ts';
import { beginToday } from '../../../services/rollup/period/periods.ts';
import { differencesOf, repairOpen, requestRepair } from '../../../services/rollup/repairs.ts';
import { hasServer } from '../../harness/clickhouse.ts';
import { apiCounts, invocationsOf, invocationStats, type Invocation, type StoredEvent } from '../../harness/oracle.ts';
import { openWorld, type World } from './world.ts';

// Rollups that equal the raw logs, for every caller, at every moment: over eight days with 29 February, a month's end
// and midnight in them, before there are rollups, while history is built, while it is built anew, after a restart; each
// time against a plain recomputation.

const SEED = Number(process.env['SEED'] ?? 20_280_229);
const EVENTS = 200_000;
const BATCH = 8_000;
const PROJECTS = 50;
const FUNCTIONS = 20;
const FROM = Date.parse('2028-02-22T00:10:00Z');
const UNTIL = Date.parse('2028-03-01T00:30:17.123Z');
const FUNCTION_INTERVALS = ['5min', '15min', '1hr', '1day', '7day'];
const API_INTERVALS = ['minutely', 'hourly', 'daily', '15min', '30min', '3hr', '1day', '3day'];
/**
 * an instant within a bucket of every width, and instants on the edge of a minute, an hour, a day, a leap day and a
 * month
 */
const NOWS = [
  '2028-03-01T00:30:17.123Z',
  '2028-03-01T00:30:00.000Z',
  '2028-03-01T00:00:00.000Z',
  '2028-02-29T23:59:59.999Z',
  '2028-02-29T00:00:00.000Z',
  '2028-02-29T12:00:00.000Z',
].map((iso) => Date.parse(iso));

interface Request {
  readonly event: StoredEvent;
  readonly url: string;
}

// many answers a test: on a machine with other work they take a multiple of their time
describe(`rollups equal the raw logs (seed ${SEED})`, { timeout: 300_000 }, () => {
  let world: World;
  let traffic: Traffic;
  let sent = 0;
  const invocations = new Map<string, Invocation[]>();
  const requests: Request[] = [];
  const functionsOf = new Map<string, string>();

  beforeAll(async () => {
    world = await openWorld({ now: FROM, migrated: false });
    traffic = createTraffic({
      seed: SEED,
      projects: PROJECTS,
      functionsPerProject: FUNCTIONS,
      shares: { edge_logs: 1, function_edge_logs: 1 },
      urlShapes: Object.fromEntries(urlShapes.map((shape) => [shape, shape === 'platform' ? 20 : 1])),
      untimedShare: 0.1,
      selfHostedShare: 0.02,
      disorderMicros: 120e6,
      lateShare: 0.2,
      lateMicros: 8 * DAY * 1e6,
      aheadShare: 0.05,
      aheadMicros: 59 * 60e6,
    });
    while (sent < EVENTS * 0.9) await sendBatch();
  });
  afterAll(() => world.close());

  /** The next events of the eight days, judged when the last of them happened. */
  async function sendBatch(): Promise<void> {
    const times = Array.from(
      { length: BATCH },
      (_, i) => FROM + Math.floor(((UNTIL - FROM) * (sent + i + 1)) / EVENTS),
    );
    sent += BATCH;
    const evaluatedAt = times.at(-1)!;
    const events = times
      .map((at) => traffic.next(at * 1000))
      .filter((e) => e.timestampMicros <= (evaluatedAt + 3_600_000) * 1000);
    for (const source of ['edge_logs', 'function_edge_logs'] as const) {
      const ofSource = events.filter((e) => e.source === source);
      await world.send(
        source,
        ofSource.map((e) => e.json),
        { evaluatedAt, partition: sent % 3 },
      );
      for (const event of ofSource) note(event);
    }
    world.now = Math.max(world.now, evaluatedAt);
  }

  function note(event: TrafficEvent): void {
    const full = contentOf(event) as {
      metadata: {
        request?: { url?: string; path?: string };
        response?: unknown;
        function_id?: string;
        execution_time_ms?: number;
      };
    };
    const { request, response, function_id, execution_time_ms } = full.metadata;
    const content =
      event.source === 'edge_logs'
        ? { metadata: { request: { url: request?.url, path: request?.path } } }
        : { metadata: { response, function_id, execution_time_ms } };
    const stored: StoredEvent = {
      source: event.source,
      project: event.project,
      timestamp: event.timestampMicros,
      content,
      topic: '',
      partition: 0,
      offset: 0,
    };
    if (event.source === 'edge_logs') {
      if (request?.url !== undefined) requests.push({ event: stored, url: request.url });
      return;
    }
    for (const invocation of invocationsOf([stored])) {
      const list = invocations.get(event.project) ?? [];
      list.push(invocation);
      invocations.set(event.project, list);
      functionsOf.set(event.project, invocation.functionId);
    }
  }

  async function checkInvocations(
    project: string,
    now: number,
    intervals: readonly string[] = FUNCTION_INTERVALS,
  ): Promise<number> {
    let counted = 0;
    for (const interval of intervals) {
      for (const function_id of ['', functionsOf.get(project) ?? 'none']) {
        const expected = invocationStats(
          invocations.get(project) ?? [],
          { project, function_id, interval },
          now * 1000,
        );
        const answer = await world.ask('functions.invocation-stats', { project, function_id, interval }, now);
        const what = `${project} ${function_id} ${interval} ${new Date(now).toISOString()}`;
        expect(answer.length, what).toBe(expected.length);
        counted += expected.filter((row) => row.count > 0).length;
        answer.forEach((row, i) => {
          const right = expected[i]!;
          expect(row, what).toMatchObject({
            timestamp: right.timestamp,
            count: right.count,
            error_count: right.error_count,
            min_execution_time: right.min_execution_time,
            max_execution_time: right.max_execution_time,
          });
          const [avg, p95, p99] = [row['avg_execution_time'], row['p95_execution_time'], row['p99_execution_time']] as (
            | number
            | null
          )[];
          if (right.p95 === null || right.p99 === null) expect([avg, p95, p99], what).toEqual([null, null, null]);
          else {
            expect(avg! / right.avg_execution_time!, what).toBeCloseTo(1, 9);
            const ordered = [right.min_execution_time!, p95!, p99!, right.max_execution_time!];
            expect(ordered, what).toEqual(ordered.toSorted((a, b) => a - b));
            expectWithin(p95!, right.p95, what);
            expectWithin(p99!, right.p99, what);
          }
        });
      }
    }
    return counted;
  }

  const matching = (matches: (url: string) => boolean): StoredEvent[] =>
    requests.filter((r) => matches(r.url)).map((r) => r.event);

  async function checkRequests(
    pattern: string,
    matches: (url: string) => boolean,
    now: number,
    intervals: readonly string[] = API_INTERVALS,
  ): Promise<number> {
    const events = matching(matches);
    let counted = 0;
    for (const interval of intervals) {
      const answer = await world.ask('usage.api-counts', { project: pattern, interval }, now);
      expect(answer, `${pattern} ${interval} ${new Date(now).toISOString()}`).toEqual(
        apiCounts(events, interval, () => true, now * 1000).slice(0, 1000),
      );
      counted += answer.length;
    }
    return counted;
  }

  const project = (rank: number): string => traffic.population.project(rank).ref;

  const SAMPLED = [0, 3, 49];
  let looks = 0;

  /** One of the sampled projects, another one each time. An answer takes 40 ms, and there are many looks. */
  async function look(now: number): Promise<number> {
    return await sample(now, [SAMPLED[looks++ % SAMPLED.length]!]);
  }

  /** A few of everything; gives how many buckets with something in them were compared. */
  async function sample(now: number, ranks = SAMPLED): Promise<number> {
    let counted = 0;
    for (const rank of ranks) counted += await everythingOf(project(rank), now);
    return counted + (await checkRequests('/storage/', (url) => url.includes('/storage/'), now, ['minutely', 'daily']));
  }

  async function everythingOf(ref: string, now: number): Promise<number> {
    return (await checkInvocations(ref, now)) + (await checkRequests(ref, (url) => url.includes(ref), now));
  }

  const states = async (): Promise<string[]> => (await readRollups(world.clickhouse)).map((r) => r.state);

  test('as soon as views are made over existing logs, from raw', async () => {
    await world.makeRollups();
    await beginToday(world.context);
    await admitNew(world.context);
    expect(await states()).toEqual(['building', 'building']);
    expect(await sample(world.now)).toBeGreaterThan(500);
  });

  test('while history is built and events go on, late ones among them', async () => {
    const left: number[] = [];
    let steps = 0;
    for (let ms = await nextStep(world.context); ms !== undefined; ms = await nextStep(world.context)) {
      await world.context.wait(ms);
      if (sent < EVENTS * 0.97) await sendBatch();
      if (++steps % 2 === 0) await look(world.now);
      left.push((await readRollups(world.clickhouse)).reduce((sum, r) => sum + r.pending.length, 0));
    }
    // period by period, for both
    expect(new Set(left).size).toBeGreaterThan(8);
    expect(left).toEqual(left.toSorted((a, b) => b - a));
    expect(await states()).toEqual(['serving', 'serving']);
  });

  // embedded; on a server, which differs by its profile and its version, every fifth
  test('with all of history built: every project, function, interval', async () => {
    while (sent < EVENTS) await sendBatch();
    expect(requests.length + [...invocations.values()].reduce((sum, list) => sum + list.length, 0)).toBeGreaterThan(
      EVENTS * 0.95,
    );
    world.now = UNTIL;
    let counted = 0;
    const stride = hasServer() ? 5 : 1;
    for (let rank = 0; rank < PROJECTS; rank += stride) counted += await everythingOf(project(rank), UNTIL);
    expect(counted).toBeGreaterThan(8_000 / stride);
  });

  test.each(NOWS.map((now) => [new Date(now).toISOString(), now] as const))('with now at %s', async (_, now) => {
    expect(await sample(now)).toBeGreaterThan(500);
  });

  test('for patterns of all kinds', async () => {
    const [busy, quiet] = [project(0), project(40)];
    const long = requests
      .map((r) => /[a-z]{24,}/.exec(r.event.timestamp > (UNTIL - 3_600_000) * 1000 ? r.url : '')?.[0])
      .find((run) => run !== undefined)!;
    const patterns: readonly (readonly [pattern: string, matches: RegExp])[] = [
      [long.slice(2, 22), new RegExp(long.slice(2, 22))],
      ['zzzzzzzzzzzzzzzzzzzz', /z{20}/],
      [busy.slice(0, 19), new RegExp(busy.slice(0, 19))],
      [`${busy}\\.`, new RegExp(`${busy}\\.`)],
      [busy.toUpperCase(), new RegExp(busy.toUpperCase())],
      [`(?i)${busy}`, new RegExp(busy, 'i')],
      [`${busy}|${quiet}`, new RegExp(`${busy}|${quiet}`)],
      ['^https://[a-z]{20}\\.', /^https:\/\/[a-z]{20}\./],
      ['%[0-9a-f]{2}', /%[0-9a-f]{2}/],
      ['[A-Z]{20}', /[A-Z]{20}/],
      ['\\.csv$', /\.csv$/],
      ['.', /./],
    ];
    const unmatched: string[] = [];
    for (const [pattern, js] of patterns)
      if ((await checkRequests(pattern, (url) => js.test(url), UNTIL, ['minutely', 'hourly', 'daily'])) === 0)
        unmatched.push(pattern);
    expect(unmatched).toEqual(['zzzzzzzzzzzzzzzzzzzz']);
  });

  test('after a restart', async () => {
    await world.restart();
    expect((await sample(UNTIL)) + (await sample(NOWS[3]!))).toBeGreaterThan(1_000);
  });

  test('while periods are built anew and events go on', async () => {
    let waits = 0;
    world.onWait = async () => {
      if (++waits <= 8) await sendBatch();
      await look(world.now);
    };
    const today = Math.floor(world.now / 1000 / DAY) * DAY;
    for (const source of ['edge_logs', 'function_edge_logs']) {
      for (const days of [0, 1, 2])
        await requestRepair(world.context, {
          source,
          period: today - days * DAY,
          from: today - 8 * DAY,
          to: today + 2 * DAY,
          reason: 'command',
          accept_loss: false,
        });
    }
    for (let left = 6; left > 0; left = await repairOpen(world.context)) await sendBatch();
    world.onWait = () => Promise.resolve();
    expect(waits).toBeGreaterThan(4);
    await sample(world.now);
  });

  test('and so says the comparison of everything', async () => {
    for (const rollup of await readRollups(world.clickhouse))
      expect(await differencesOf(world.context, rollup, undefined, { from: 0, to: 4_294_967_295 })).toEqual([]);
  });
});

function expectWithin(value: number, [low, high]: readonly [number, number], what: string): void {
  expect(value, what).toBeGreaterThanOrEqual(low * (1 - 1e-6));
  expect(value, what).toBeLessThanOrEqual(high * (1 + 1e-6));
}
