import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { contentOf, createTraffic, type Traffic, type TrafficEvent } from '../../../demo/traffic.ts';
import { urlShapes } from '../../../demo/urls.ts';
import { readRollups } from '../../../services/rollup/period/catalogue.ts';
import { DAY } from '../../../services/rollup/period/time.ts';
import { admitNew, nextStep } from '../../../services/rollup/history.ts';
import { beginToday } from '../../../services/rollup/period/periods.ts';
import { differencesOf, repairOpen, requestRepair } from '../../../services/rollup/repairs.ts';
import { expectInvocationStats } from '../../harness/expect-answers.ts';
import { apiCounts, invocationsOf, invocationStats, type Invocation, type StoredEvent } from '../../harness/oracle.ts';
import { hasServer } from '../../harness/clickhouse.ts';
import { openWorld, type World } from './world.ts';

// Rollups that equal the raw logs, for every caller, at every moment: over days with 29 February, a month's end
// and midnight in them, before there are rollups, while history is built, while it is built anew, after a restart; each
// time against a plain recomputation.

const SEED = Number(process.env['SEED'] ?? 20_280_229);
/** A server differs by its profile and its version: there, fewer days are enough. */
const DAYS = hasServer() ? 3 : 8;
const EVENTS = 25_000 * DAYS;
const BATCH = 8_000;
const PROJECTS = 50;
const FUNCTIONS = 20;
/** All 18 questions are asked of one project in so many: an answer takes 40 ms. */
const PROJECT_STRIDE = 4;
const UNTIL = Date.parse('2028-03-01T00:30:17.123Z');
const FROM = Date.parse('2028-03-01T00:10:00Z') - DAYS * 86_400_000;
/** Prime to the number of sampled questions, which is 56: twelve looks of five ask them all. */
const LOOK_STRIDE = 11;
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
      lateMicros: DAYS * DAY * 1e6,
      aheadShare: 0.05,
      aheadMicros: 59 * 60e6,
    });
    while (sent < EVENTS * 0.9) await sendBatch();
  });
  afterAll(() => world.close());

  /** The next events of the days, judged when the last of them happened. */
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

  /** One question to an endpoint, compared with the plain recomputation. Returns how many buckets had something in them. */
  type Question = (now: number) => Promise<number>;

  const invocationsQuestion =
    (project: string, function_id: string, interval: string): Question =>
    async (now) => {
      const answer = await world.ask('functions.invocation-stats', { project, function_id, interval }, now);
      const expected = invocationStats(invocations.get(project) ?? [], { project, function_id, interval }, now * 1000);
      expectInvocationStats(answer, expected, `${project} ${function_id} ${interval} ${new Date(now).toISOString()}`);
      return expected.filter((row) => row.count > 0).length;
    };

  const requestsQuestion =
    (pattern: string, matches: (url: string) => boolean, interval: string): Question =>
    async (now) => {
      const answer = await world.ask('usage.api-counts', { project: pattern, interval }, now);
      const events = requests.filter((r) => matches(r.url)).map((r) => r.event);
      expect(answer, `${pattern} ${interval} ${new Date(now).toISOString()}`).toEqual(
        apiCounts(events, interval, () => true, now * 1000).slice(0, 1000),
      );
      return answer.length;
    };

  function everythingOf(rank: number): Question[] {
    const { ref } = traffic.population.project(rank);
    return [
      ...FUNCTION_INTERVALS.flatMap((interval) =>
        ['', functionsOf.get(ref) ?? 'none'].map((id) => invocationsQuestion(ref, id, interval)),
      ),
      ...API_INTERVALS.map((interval) => requestsQuestion(ref, (url) => url.includes(ref), interval)),
    ];
  }

  /** All that a busy, a common and a quiet project may ask, and what one family of paths got. */
  const sampled = (ranks = [0, 3, 49]): Question[] => [
    ...ranks.flatMap(everythingOf),
    ...['minutely', 'daily'].map((i) => requestsQuestion('/storage/', (url) => url.includes('/storage/'), i)),
  ];

  async function ask(questions: readonly Question[], now: number): Promise<number> {
    let counted = 0;
    for (const question of questions) counted += await question(now);
    return counted;
  }

  let looks = 0;

  /**
   * Five of the sampled questions, other ones each time. An answer takes 40 ms, and there are many looks.
   */
  async function look(now: number): Promise<number> {
    const questions = sampled();
    return await ask(
      Array.from({ length: 5 }, () => questions[(looks++ * LOOK_STRIDE) % questions.length]!),
      now,
    );
  }

  const states = async (): Promise<string[]> => (await readRollups(world.clickhouse)).map((r) => r.state);

  test('as soon as views are made over existing logs, from raw', async () => {
    await world.makeRollups();
    await beginToday(world.context);
    await admitNew(world.context);
    expect(await states()).toEqual(['building', 'building']);
    expect(await ask(sampled(), world.now)).toBeGreaterThan(500);
  });

  test('while history is built and events go on, late ones among them', async () => {
    const left: number[] = [];
    for (let ms = await nextStep(world.context); ms !== undefined; ms = await nextStep(world.context)) {
      await world.context.wait(ms);
      if (sent < EVENTS * 0.97) await sendBatch();
      await look(world.now);
      left.push((await readRollups(world.clickhouse)).reduce((sum, r) => sum + r.pending.length, 0));
    }
    // period by period, for both
    expect(new Set(left).size).toBeGreaterThan(8);
    expect(left).toEqual(left.toSorted((a, b) => b - a));
    expect(await states()).toEqual(['serving', 'serving']);
  });

  test('with all of history built: every interval of projects of all sizes', async () => {
    while (sent < EVENTS) await sendBatch();
    expect(requests.length + [...invocations.values()].reduce((sum, list) => sum + list.length, 0)).toBeGreaterThan(
      EVENTS * 0.95,
    );
    world.now = UNTIL;
    const ranks = Array.from({ length: PROJECTS }, (_, rank) => rank).filter((rank) => rank % PROJECT_STRIDE === 0);
    expect(await ask(ranks.flatMap(everythingOf), UNTIL)).toBeGreaterThan(8_000 / PROJECT_STRIDE);
  });

  test.each(NOWS.map((now) => [new Date(now).toISOString(), now] as const))('with now at %s', async (_, now) => {
    expect(await ask(sampled([0, 49]), now)).toBeGreaterThan(300);
  });

  test('for patterns of all kinds', async () => {
    const [busy, quiet] = [0, 40].map((rank) => traffic.population.project(rank).ref) as [string, string];
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
      if (
        (await ask(
          ['minutely', 'hourly', 'daily'].map((i) => requestsQuestion(pattern, (url) => js.test(url), i)),
          UNTIL,
        )) === 0
      )
        unmatched.push(pattern);
    expect(unmatched).toEqual(['zzzzzzzzzzzzzzzzzzzz']);
  });

  test('after a restart', async () => {
    await world.restart();
    expect((await ask(sampled(), UNTIL)) + (await ask(sampled(), NOWS[3]!))).toBeGreaterThan(1_000);
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
    await ask(sampled(), world.now);
  });

  test('and so says the comparison of everything', async () => {
    for (const rollup of await readRollups(world.clickhouse))
      expect(await differencesOf(world.context, rollup, undefined, { from: 0, to: 4_294_967_295 })).toEqual([]);
  });
});
