import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createTraffic, type TrafficEvent } from '../../../demo/traffic.ts';
import { urlShapes } from '../../../demo/urls.ts';
import type { QueryService } from '../../../services/query/service.ts';
import {
  apiCounts,
  invocationStats,
  invocationsOf,
  logsAll,
  type Invocation,
  type StoredEvent,
} from '../../harness/oracle.ts';
import { expectInvocationStats } from '../../harness/expect-answers.ts';
import { call, modes, openEngine, send, startService, store, type Engine, type Row } from './service.ts';

/** The three endpoints against a plain recomputation over the events that were stored, at several moments. */
const DAY = 86_400_000;
const NOW = Date.UTC(2026, 1, 28, 23, 59, 41, 237);
const moments: [string, number][] = [
  ['in the middle of everything', NOW],
  ['on midnight of a month', Date.UTC(2026, 2, 1)],
  ['a millisecond before a minute ends', Date.UTC(2026, 1, 28, 23, 58, 59, 999)],
  ['on the edge of an hour', Date.UTC(2026, 1, 28, 23, 0, 0)],
];
const PROJECTS = 6;
const seed = 20260301;

let engine: Engine;
let service: QueryService;
let events: StoredEvent[] = [];
let invocations: Invocation[] = [];
let refs: string[] = [];

async function rows(endpoint: string, query: Record<string, string>): Promise<Row[]> {
  const reply = await call(service, endpoint, query);
  expect([reply.status, reply.status === 200 ? '' : reply.text]).toEqual([200, '']);
  return reply.rows;
}

describe.each(modes)('%s', (mode) => {
  beforeAll(async () => {
    engine = await openEngine(mode);
    events = [];
    const traffic = createTraffic({
      seed,
      projects: PROJECTS,
      functionsPerProject: 3,
      selfHostedShare: 0.1,
      untimedShare: 0.1,
      shares: { edge_logs: 10, function_edge_logs: 10, postgres_logs: 1, auth_logs: 1 },
      urlShapes: Object.fromEntries(urlShapes.map((shape) => [shape, shape === 'platform' ? 60 : 1])),
      ids: { uuid: 4, number: 1, absent: 1, empty: 1 },
      notations: { microseconds: 4, utc_nanoseconds: 2, decimal_seconds: 1, offset: 1, blank: 1, without_zone: 1 },
    });
    refs = [...new Set(Array.from({ length: 200 }, () => traffic.next(NOW * 1000).project))];
    const made: TrafficEvent[] = [];
    // eight days thinly, the last hours densely, a little ahead, and exactly on the edges of buckets
    for (let i = 0; i < 6000; i++)
      made.push(traffic.next((NOW - 8 * DAY + Math.floor((i / 6000) * 8 * DAY)) * 1000 + (i % 1000)));
    for (let i = 0; i < 6000; i++)
      made.push(traffic.next((NOW - 4 * 3_600_000 + Math.floor((i / 6000) * 4 * 3_600_000)) * 1000 + (i % 1000)));
    for (let i = 0; i < 1500; i++)
      made.push(traffic.next((NOW - 301_000 + Math.floor((i / 1500) * 301_000)) * 1000 + (i % 1000)));
    for (let i = 0; i < 300; i++) made.push(traffic.next((NOW + Math.floor((i / 300) * 3_500_000)) * 1000));
    for (const [, moment] of moments) {
      for (const span of [0, 300_000, 900_000, 3_600_000, DAY, 3 * DAY, 7 * DAY]) {
        for (const micros of [-1, 0, 1])
          for (const source of ['edge_logs', 'function_edge_logs'] as const)
            for (let i = 0; i < 3; i++) made.push(traffic.next((moment - span) * 1000 + micros, source));
      }
    }
    // one id at one microsecond, in all partitions, twice in each: only their places order them
    for (let i = 0; i < 6; i++) {
      const json = JSON.stringify({
        id: 'twin',
        project: refs[0],
        timestamp: (NOW - 1000) * 1000,
        event_message: `${i}`,
      });
      made.push({
        ...traffic.next(NOW * 1000, 'edge_logs'),
        project: refs[0]!,
        timestampMicros: (NOW - 1000) * 1000,
        json,
      });
    }
    // more of one microsecond than a page of logs.all has
    for (let i = 0; i < 1200; i++) made.push(traffic.next((NOW - 2_000_000) * 1000, 'edge_logs'));
    const offsets = new Map<string, number>();
    for (const source of ['edge_logs', 'function_edge_logs', 'postgres_logs', 'auth_logs'] as const) {
      for (const partition of [0, 1, 2]) {
        const mine = made.filter((e, i) => e.source === source && i % 3 === partition);
        const key = `${source}-${partition}`;
        // several batches, the later ones going back in time
        for (const part of [1, 0, 2]) {
          const batch = mine.filter((_, i) => i % 3 === part);
          const first = offsets.get(key) ?? 0;
          offsets.set(key, first + batch.length);
          await store(
            engine.clickhouse,
            source,
            batch.map((e) => e.json),
            { now: NOW, partition, first },
          );
          batch.forEach((e, i) => {
            events.push({
              source,
              project: e.project,
              timestamp: e.timestampMicros,
              content: JSON.parse(e.json) as Record<string, unknown>,
              topic: source,
              partition,
              offset: first + i,
            });
          });
        }
      }
    }
    invocations = invocationsOf(events);
  });
  afterAll(() => engine?.close());

  describe.each(mode === 'embedded' ? moments : moments.slice(0, 1))('%s', (_, moment) => {
    beforeAll(async () => {
      service = await startService(engine.clickhouse, engine.dataDir, {}, { clock: () => moment });
      await service.ready;
    });
    afterAll(() => service.stop());

    /** All projects; at the other moments two, the answers of which differ by the moment as all do. */
    const asked = (): string[] => (moment === NOW ? refs : refs.slice(0, 2));

    it.each(['5min', '15min', '1hr', '1day', '7day', 'anything else', undefined])(
      'functions.invocation-stats, interval %s',
      async (interval) => {
        let counted = 0;
        for (const ref of asked()) {
          const functions = [
            undefined,
            '',
            ...new Set(invocations.filter((i) => i.project === ref).map((i) => i.functionId)),
          ].slice(0, 4);
          for (const functionId of functions) {
            const query = {
              project: ref,
              ...(interval !== undefined && { interval }),
              ...(functionId !== undefined && { function_id: functionId }),
            };
            const got = await rows('functions.invocation-stats', query);
            const expected = invocationStats(invocations, query, moment * 1000);
            expectInvocationStats(got, expected);
            for (const { count } of expected) counted += count;
          }
        }
        expect(counted).toBeGreaterThan(0);
      },
    );

    it.each(['minutely', 'hourly', 'daily', '15min', '30min', '1hr', '3hr', '1day', '3day', '7day'])(
      'usage.api-counts, interval %s',
      async (interval) => {
        const literal = asked().map((ref): [string, (url: string) => boolean] => [ref, (url) => url.includes(ref)]);
        const patterns: [string, (url: string) => boolean][] = [
          'supabase',
          `^https://${refs[0]}\\.`,
          `${refs[1]}|${refs[2]}`,
          `(?i)${refs[3]?.toUpperCase()}`,
          '/rest/.*select',
          'a.c',
          `${refs[0]}x`,
          'nowhere at all',
          '.',
        ].map((p) => {
          const insensitive = p.startsWith('(?i)');
          const regexp = new RegExp(insensitive ? p.slice(4) : p, insensitive ? 'i' : '');
          return [p, (url) => regexp.test(url)];
        });
        let matched = 0;
        for (const [project, matches] of [...literal, ...patterns]) {
          const got = await rows('usage.api-counts', { project, interval });
          expect({ project, rows: got }).toEqual({
            project,
            rows: apiCounts(events, interval, matches, moment * 1000),
          });
          matched += got.length;
        }
        expect(matched).toBeGreaterThan(0);
      },
    );

    it('logs.all, every tier and bound', async () => {
      const iso = (micros: number): string =>
        `${new Date(Math.floor(micros / 1000)).toISOString().slice(0, 19)}.${String(((micros % 1e6) + 1e6) % 1e6).padStart(6, '0')}Z`;
      for (const ref of asked()) {
        const mine = events
          .filter((e) => e.source === 'edge_logs' && e.project === ref)
          .map((e) => e.timestamp)
          .toSorted((a, b) => a - b);
        const some = [mine[0], mine[Math.floor(mine.length / 2)], mine.at(-1), (NOW - 2_000_000) * 1000].filter(
          (t) => t !== undefined,
        );
        for (const tier of ref === refs[0]
          ? ['FREE', 'PRO', 'PAYG', 'ENTERPRISE', 'free', undefined]
          : ['PRO', undefined]) {
          for (const [after, until] of [
            [undefined, undefined],
            [some[0], some[1]],
            [some[1], undefined],
            [undefined, some[1]],
            [undefined, some[3]],
            [some[1], some[1]],
            [some[2], some[0]],
          ]) {
            const got = await rows('logs.all', {
              project: ref,
              ...(tier !== undefined && { project_tier: tier }),
              ...(after !== undefined && { iso_timestamp_start: iso(after) }),
              ...(until !== undefined && { iso_timestamp_end: iso(until) }),
            });
            const expected = logsAll(
              events,
              {
                project: ref,
                ...(tier !== undefined && { project_tier: tier }),
                ...(after !== undefined && { after }),
                ...(until !== undefined && { until }),
              },
              moment * 1000,
            );
            expect(got).toEqual(expected);
          }
        }
      }
    });
  });

  it.each([
    ['that is busy', 'busy', '2026-02-28 21:00:00', 20],
    ['that has been silent for hours', 'silent', '2026-02-28 12:00:00', 0],
  ])('logs.all of a project %s reads its newest rows, not all', async (_, project, from, daysBefore) => {
    service = await startService(engine.clickhouse, engine.dataDir, {}, { clock: () => NOW });
    await service.ready;
    const insert = (number: number): Promise<void> =>
      engine.clickhouse.execute({
        sql: `INSERT INTO edge_logs (project, timestamp, id, message, kafka_offset) SELECT '${project}', toDateTime64('${from}', 6, 'UTC') + number / 100, toString(number), '{}', number FROM numbers(${number} * 250000, 250000)`,
      });
    for (let n = 0; n < 4; n++) await insert(n);
    for (let day = 1; day <= daysBefore; day++)
      await engine.clickhouse.execute({
        sql: `INSERT INTO edge_logs (project, timestamp, id, message) SELECT '${project}', toDateTime64('${from}', 6, 'UTC') - toIntervalDay(${day}) + number / 100, '', '{}' FROM numbers(20000)`,
      });
    const got = await rows('logs.all', { project, project_tier: 'PAYG' });
    expect(got.map((r) => r['id'])).toEqual(Array.from({ length: 100 }, (_, i) => String(999_999 - i)));
    const read = Number(
      /^sluice_query_read_rows_total\{endpoint="logs.all"\} (\d+)$/m.exec(
        (await send(service.address, '/metrics')).text,
      )?.[1],
    );
    expect(read).toBeGreaterThan(0);
    expect(read).toBeLessThan(100_000);
    await service.stop();
  });
});
