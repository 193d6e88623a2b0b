import { describe, expect, test } from 'vitest';
import { rules } from '../alerts.ts';
import { sectionOf } from '../runbook.ts';
import type { Status, SystemStatus } from '../wire.ts';
import type { Entry } from './explore/events.ts';
import { Digits, parseExactly } from './explore/json.ts';
import { nextPage, withoutShown } from './explore/paging.ts';
import { seriesOf, withEmptyBuckets } from './explore/series.ts';
import { clock, duration, instant, isoMicros, outcomeText, pickedAt, timestamp } from './format.ts';
import { mergeStatus } from './live.ts';
import { hexDump, textOf } from './operate/octets.ts';
import { blocksOf } from './overview/alerts.ts';
import { tilesOf } from './overview/overview.ts';
import { addressOf, readPlace } from './route.ts';

describe('pages of entries', () => {
  /** As logs.all answers: newest first up to `end`, ties in one order. */
  const answer = (all: readonly Entry[], end: string, limit: number): Entry[] =>
    all.filter((e) => end === '' || isoMicros(e.timestamp) <= end).slice(0, limit);
  const entry = (micros: number, id: number): Entry => ({
    id: String(id),
    timestamp: 1_700_000_000_000_000 + micros,
    event_message: '',
    metadata: [],
  });
  function walk(all: readonly Entry[], limit: number): { ids: (string | null)[]; cuts: number } {
    const ids: (string | null)[] = [];
    let [end, shown, cuts] = ['', 0, 0];
    for (let pages = 0; pages < 100; pages++) {
      const rows = answer(all, end, limit);
      ids.push(...withoutShown(rows, end, shown).map((e) => e.id));
      const next = nextPage(rows, limit);
      if (next === undefined) return { ids, cuts };
      if (next.isCut) cuts++;
      ({ end, shown } = next);
    }
    throw new Error('endless');
  }

  test('show every entry once, also where some share their microsecond across pages', () => {
    const micros = [99, 98, 98, 98, 97, 96, 96, 95, 94, 94, 94, 94, 90, 90, 90, 89, 88];
    const all = micros.map((m, i) => entry(m, i));
    for (const limit of [5, 6, 7, 100]) expect(walk(all, limit)).toEqual({ ids: all.map((e) => e.id), cuts: 0 });
  });

  test('go on below an instant that fills a whole page, and say that some of it is out of reach', () => {
    const all = [...Array.from({ length: 9 }, (_, i) => entry(50, i)), entry(40, 100)];
    expect(walk(all, 4)).toEqual({ ids: ['0', '1', '2', '3', '100'], cuts: 1 });
  });
});

describe('the chart of an answer', () => {
  const stats = [
    {
      timestamp: 1_772_323_200_000_000,
      min_execution_time: null,
      p95_execution_time: null,
      p99_execution_time: null,
      count: 0,
      error_count: 0,
    },
    {
      timestamp: 1_772_323_260_000_000,
      min_execution_time: 1,
      p95_execution_time: 5,
      p99_execution_time: 9,
      count: 4,
      error_count: 1,
    },
  ];

  test('has counts as bars, and the percentiles as lines on the second axis', () => {
    const { curves, times, isStacked, rightUnit } = seriesOf(stats)!;
    expect(curves.map((c) => [c.label, c.shape, c.isRight === true, c.values])).toEqual([
      ['count', 'bar', false, [0, 4]],
      ['error_count', 'bar', false, [0, 1]],
      ['p95_execution_time', 'line', true, [null, 5]],
      ['p99_execution_time', 'line', true, [null, 9]],
    ]);
    expect({ times, isStacked, rightUnit }).toEqual({
      times: [1_772_323_200, 1_772_323_260],
      isStacked: false,
      rightUnit: 'milliseconds',
    });
  });

  test('has values in seconds as milliseconds too', () => {
    const { curves, unit } = seriesOf([{ timestamp: '2026-03-01T09:00:00', p95_seconds: 2.5 }])!;
    expect({ values: curves.map((c) => c.values), unit }).toEqual({ values: [[2500]], unit: 'milliseconds' });
  });

  test('has its failures in red, but several kinds of them in colours of their own', () => {
    const colorsOf = (row: object) =>
      seriesOf([{ timestamp: '2026-03-01T09:00:00', ...row }])?.curves.map((c) => c.color);
    expect(colorsOf({ count: 5, error_count: 1 })).toEqual([undefined, 'bad']);
    expect(colorsOf({ client_errors: 5, server_errors: 1 })).toEqual([undefined, undefined]);
  });

  test('stacks the parts of one whole, and shows buckets that the answer leaves out as 0', () => {
    const row = (timestamp: string, rest: number): Record<string, unknown> => ({
      timestamp,
      total_rest_requests: rest,
      total_auth_requests: 2,
    });
    const found = withEmptyBuckets(
      seriesOf([row('2026-03-01T09:00:00', 1), row('2026-03-01T09:01:00', 3), row('2026-03-01T09:04:00', 5)])!,
    );
    expect(found.isStacked).toBe(true);
    expect(found.times.map((t) => t - found.times[0]!)).toEqual([0, 60, 120, 180, 240]);
    expect(found.curves[0]!.values).toEqual([1, 3, 0, 0, 5]);
  });

  test.each([
    ['no rows', []],
    ['no time', [{ count: 1 }]],
    ['times out of order', [stats[1]!, stats[0]!]],
    ['nothing but texts', [{ timestamp: '2026-03-01T09:00:00', name: 'x' }]],
  ])('is none with %s', (_, rows) => {
    expect(seriesOf(rows)).toBeUndefined();
  });
});

test('what is new replaces what was known of its steps, and the hour moves on', () => {
  const status = (from: number, values: (number | null)[], endpoint: string): Status => ({
    now: 0,
    started_at: 0,
    step_seconds: 10,
    from,
    steps: values.length,
    key: { id: '', name: '', scopes: [], projects: [], expires_at: null },
    system: null,
    endpoints: [{ endpoint, requests: values, errors: values, hits: values, cacheable: values, p95_ms: values }],
  });
  const hour = Array.from({ length: 360 }, (_, i) => i);
  const known = status(10_000, hour, 'a');
  const merged = mergeStatus(known, status(10_000 + 358 * 10, [1000, 1001, 1002], 'a'));
  expect([merged.from, merged.steps, merged.endpoints[0]!.requests.length]).toEqual([10_010, 360, 360]);
  expect(merged.endpoints[0]!.requests.slice(-4)).toEqual([357, 1000, 1001, 1002]);
  expect(merged.endpoints[0]!.requests[0]).toBe(1);
  // late batches change older steps; what a service that was restarted does not know stays
  const whole = mergeStatus(known, status(10_010, [7, null, ...hour.slice(3), 1000], 'a'));
  expect([whole.from, whole.steps, whole.endpoints[0]!.requests]).toEqual([
    10_010,
    360,
    [7, 2, ...hour.slice(3), 1000],
  ]);
  const setBack = status(5_000, hour, 'a');
  expect(mergeStatus(known, setBack)).toEqual(setBack);
  // an endpoint that is new was not asked before; steps that nobody saw are unknown
  const gap = mergeStatus(known, status(10_000 + 362 * 10, [5], 'b'));
  expect(gap.endpoints.map((e) => [e.endpoint, e.requests.slice(-4)])).toEqual([
    ['a', [359, null, null, null]],
    ['b', [null, null, null, 5]],
  ]);
});

test('counts of the last hour stay until a service that was restarted knows them', () => {
  const status = (
    store_seen_at: number | null,
    topics: readonly (Pick<SystemStatus['topics'][number], 'topic'> & Partial<SystemStatus['topics'][number]>)[],
  ): Status => ({
    now: 0,
    started_at: 0,
    step_seconds: 10,
    from: 10_000,
    steps: 1,
    key: { id: '', name: '', scopes: [], projects: [], expires_at: null },
    endpoints: [],
    system: {
      topics: topics.map((topic) => ({
        source: 's',
        events: [null],
        events_last_hour: 0,
        age_ms: [null],
        newest_ms: null,
        lag: [null],
        lag_now: null,
        ...topic,
      })),
      dead_letters: [],
      dead_letter_totals: [],
      paused: [],
      rollups: [],
      alerts: [],
      store_answers: store_seen_at !== null,
      store_seen_at,
      ingest_here: true,
    },
  });
  const counts = (of: Status): [string, number, number | null][] =>
    of.system!.topics.map((t) => [t.topic, t.events_last_hour, t.newest_ms]);
  const known = status(1, [{ topic: 'a', events_last_hour: 7, newest_ms: 5 }]);
  expect(counts(mergeStatus(known, status(null, [])))).toEqual([['a', 7, 5]]);
  expect(counts(mergeStatus(known, status(null, [{ topic: 'a', lag_now: 3 }])))).toEqual([['a', 7, 5]]);
  expect(counts(mergeStatus(known, status(2, [{ topic: 'a', events_last_hour: 8, newest_ms: 6 }])))).toEqual([
    ['a', 8, 6],
  ]);
  // an hour without events
  expect(counts(mergeStatus(known, status(2, [])))).toEqual([['a', 0, null]]);
  const bad = { ...known, system: { ...known.system!, dead_letters: [{ reason: 'r', letters: [3] }] } };
  expect(mergeStatus(bad, status(null, [])).system!.dead_letters).toEqual([{ reason: 'r', letters: [3] }]);
  expect(mergeStatus(bad, status(2, [])).system!.dead_letters).toEqual([{ reason: 'r', letters: [0] }]);
});

describe('a tile', () => {
  const topic = { source: 's', events: [], events_last_hour: 0, age_ms: [], newest_ms: null, lag: [] };
  const system: SystemStatus = {
    topics: [
      { ...topic, topic: 'a', lag_now: 3 },
      { ...topic, topic: 'b', lag_now: null },
    ],
    dead_letters: [],
    dead_letter_totals: [],
    paused: [],
    rollups: [],
    alerts: [],
    store_answers: true,
    store_seen_at: 0,
    ingest_here: true,
  };
  const status: Status = {
    now: 0,
    started_at: 0,
    step_seconds: 10,
    from: 0,
    steps: 0,
    key: { id: '', name: '', scopes: [], projects: [], expires_at: null },
    endpoints: [],
    system,
  };
  const tile = (name: string, more: Partial<SystemStatus> = {}) =>
    tilesOf({ ...system, ...more }, status).find(([of]) => of === name);

  test('of the lag sums what is known, and is no zero where nothing is', () => {
    expect(tile('Lag')).toEqual(['Lag', '3', 'records wait in Kafka']);
    for (const topics of [[], system.topics.slice(1)])
      expect(tile('Lag', { topics })).toEqual(['Lag', 'unknown', 'not measured now']);
    expect(tile('Lag', { topics: [], ingest_here: false })).toEqual([
      'Lag',
      'unknown',
      'ingest runs in another process',
    ]);
  });

  test('of paused partitions says nothing of others, and is no zero while ClickHouse does not answer', () => {
    const name = 'Paused partitions';
    expect(tile(name)).toEqual([name, '0', 'none has too many bad messages']);
    expect(tile(name, { store_answers: false })).toEqual([name, 'unknown', 'ClickHouse does not answer']);
  });
});

test('whole numbers beyond 2^53 keep their digits', () => {
  const parsed = parseExactly('{"a":12345678901234567890,"b":1.5,"c":7}') as { a: Digits; b: number; c: number };
  expect([parsed.a.source, parsed.b, parsed.c]).toEqual(['12345678901234567890', 1.5, 7]);
});

test('times are told to the microsecond', () => {
  expect(timestamp(1_772_355_599_000_001, 'utc')).toBe('2026-03-01 08:59:59.000001');
  expect(isoMicros(1_772_355_599_120_000)).toBe('2026-03-01T08:59:59.120Z');
  expect(isoMicros(1_772_355_599_000_000)).toBe('2026-03-01T08:59:59Z');
  expect([duration(850), duration(4200), duration(720_000), duration(0)]).toEqual([
    '850 ms',
    '4.2 s',
    '12 min',
    '0 ms',
  ]);
});

test('an instant is told, and a picked one read, in the zone of the page', () => {
  const iso = '2026-03-01T08:59:59Z';
  expect(instant(iso, 'utc')).toBe('2026-03-01 08:59:59');
  expect(instant(iso, 'local')).toBe(timestamp(Date.parse(iso) * 1000, 'local'));
  expect(pickedAt('2026-03-01T08:59:59', 'utc')).toBe(Date.parse(iso));
  expect(pickedAt('2026-03-01T08:59:59', 'local')).toBe(new Date(2026, 2, 1, 8, 59, 59).getTime());
  expect([pickedAt('', 'utc'), pickedAt('', 'local')]).toEqual([Number.NaN, Number.NaN]);
});

describe('a section of the runbook', () => {
  test('keeps its lists and blocks; links are their texts, and a wrapped sentence is one line', () => {
    const text =
      'Page: `x`.\nA sentence [that\ngoes](a.md#b) on:\n1. First `ls`,\n   then.\n   ```\n   SELECT 1\n   ```\n   End.\n2. Second.';
    expect(blocksOf(text)).toEqual([
      { text: 'Page: `x`.\nA sentence that goes on:\n1. First `ls`, then.', isCode: false },
      { text: 'SELECT 1', isCode: true },
      { text: 'End.\n2. Second.', isCode: false },
    ]);
  });

  test.each(rules.map((r) => r.alert))(
    '%s shows no markup of a link or block, and points at nothing below it',
    (alert) => {
      const blocks = blocksOf(sectionOf(alert)!);
      for (const { text, isCode } of blocks) {
        expect(text).not.toMatch(/```|\]\(|\bbelow\)?[.:]/);
        expect(isCode || text.split('`').length % 2 === 1, text).toBe(true);
      }
    },
  );
});

test('a time of another day has its date', () => {
  const now = Date.now();
  expect(clock(now, 'utc')).toBe(new Date(now).toISOString().slice(11, 19));
  for (const other of [now - 86_400_000, now + 86_400_000])
    expect(clock(other, 'utc')).toBe(new Date(other).toISOString().slice(0, 19).replace('T', ' '));
});

test('bytes are a text only where they are one', () => {
  expect(textOf(Buffer.from('{"a":"ü 😀\u2028"}\n'))).toBe('{"a":"ü 😀\u2028"}\n');
  expect(textOf(Buffer.from([0xc3, 0x01]))).toBeUndefined();
  expect(textOf(Buffer.from([65, 0, 66]))).toBeUndefined();
  expect(hexDump(Buffer.from('0123456789abcdef\u0001'))).toBe(
    '000000  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66  0123456789abcdef\n000010  01                                               .',
  );
});

test('a place in the page survives its address', () => {
  const params = { project: 'a&b=c?#/é', function_id: '', interval: '1hr' };
  const place = readPlace(addressOf('explore', 'functions.invocation-stats', params));
  expect([place.page, place.item, Object.fromEntries(place.params)]).toEqual([
    'explore',
    'functions.invocation-stats',
    { project: 'a&b=c?#/é', interval: '1hr' },
  ]);
  expect(readPlace('')).toMatchObject({ page: 'overview', item: '' });
  // an address that somebody typed
  expect(readPlace('#/explore/50%')).toMatchObject({ page: 'explore', item: '50%' });
});

test('the outcome of a replay is told in words', () => {
  expect(outcomeText({ stored: 1200, unknown_schema: 3 })).toBe('1,200 stored, 3 still unknown_schema');
});
