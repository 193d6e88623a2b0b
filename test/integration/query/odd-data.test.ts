import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { SourceName } from '../../../common/sources.ts';
import { call, modes, openEngine, startService, store, type Engine, type Row } from './service.ts';

/**
 * Every endpoint over odd events, compared with a recomputation of its own: members given twice, escaped keys, lists in
 * the place of objects, numbers as text, projects in several places, urls with overlapping references, and instants on
 * both sides of every edge.
 */
const SEED = Number(process.env['SEED'] ?? 7);
const SECOND = 1_000_000;
const [MINUTE, HOUR, DAY] = [60 * SECOND, 3_600 * SECOND, 86_400 * SECOND];
/** unix milliseconds: on the edge of a day, and on the edge of nothing */
const NOWS = [Date.UTC(2026, 2, 1), Date.UTC(2026, 1, 28, 17, 43, 21, 987)] as const;
const LATEST = NOWS[0];

/** JSON as it is written: a number by its digits, an object by its members in order, with duplicates. */
type Json = string | null | boolean | { readonly digits: string } | readonly Json[] | Members;
interface Members {
  readonly members: readonly (readonly [key: string, value: Json])[];
}

let state = SEED;
function random(): number {
  state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff;
  return state / 0x7fffffff;
}
const below = (n: number): number => Math.floor(random() * n);
const pick = <T>(from: readonly T[]): T => from[below(from.length)]!;
const num = (digits: string): Json => ({ digits });
const obj = (...members: [string, Json][]): Members => ({ members });

/** Writes a text with some characters as escapes. */
function written(value: Json): string {
  if (value === null || typeof value === 'boolean') return String(value);
  if (typeof value === 'string')
    return random() < 0.1
      ? `"${[...Array(value.length).keys()].map((i) => `\\u${value.charCodeAt(i).toString(16).padStart(4, '0')}`).join('')}"`
      : JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(written).join(', ')}]`;
  if ('digits' in value) return value.digits;
  return `{${(value as Members).members.map(([k, v]) => `${written(k)} : ${written(v)}`).join(',')}}`;
}

const isMembers = (value: Json | undefined): value is Members =>
  typeof value === 'object' && value !== null && 'members' in value;
const objectIn = (value: Json | undefined): Members | undefined => {
  const first = Array.isArray(value) ? (value as readonly Json[])[0] : value;
  return isMembers(first) ? first : undefined;
};
const memberOf = (object: Members | undefined, key: string): Json | undefined =>
  object?.members.find(([k]) => k === key)?.[1];
const at = (event: Members, path: string): Json | undefined => {
  const keys = path.split('.');
  let object: Members | undefined = event;
  for (const key of keys.slice(0, -1)) object = objectIn(memberOf(object, key));
  return memberOf(object, keys.at(-1)!);
};
const stringOf = (value: Json | undefined): string | undefined =>
  typeof value === 'string' ? value.toWellFormed() : undefined;
const textOf = (value: Json | undefined): string | undefined =>
  typeof value === 'object' && value !== null && 'digits' in value ? value.digits : stringOf(value);
const numberOf = (value: Json | undefined): number | undefined => {
  const text = textOf(value);
  return text !== undefined && /^-?\d+(\.\d+)?([eE][-+]?\d+)?$/.test(text) && Number.isFinite(Number(text))
    ? Number(text)
    : undefined;
};

interface Event {
  readonly json: Members;
  readonly micros: number;
  readonly offset: number;
}

/** unix microseconds in any notation that says them exactly, or finer */
function timestamp(micros: number): Json {
  const [seconds, fraction] = [Math.floor(micros / SECOND), String(micros % SECOND).padStart(6, '0')];
  const iso = new Date(seconds * 1000).toISOString().slice(0, 19);
  const finer = String(below(1000)).padStart(3, '0');
  const shift = pick([-11 * 3600 - 1800, -3600, 5 * 3600 + 2700, 23 * 3600 + 3540]);
  const zoned = `${new Date((seconds + shift) * 1000).toISOString().slice(0, 19)}.${fraction}`;
  const zone = `${shift < 0 ? '-' : '+'}${String(Math.floor(Math.abs(shift) / 3600)).padStart(2, '0')}`;
  const minutes = String((Math.abs(shift) / 60) % 60).padStart(2, '0');
  const digits = pick([
    String(micros),
    `${micros}${finer}`,
    `${seconds}.${fraction}`,
    `${seconds}.${fraction}${finer}`,
  ]);
  return pick([
    num(digits),
    digits,
    `${iso}.${fraction}Z`,
    `${iso.replace('T', ' ')}.${fraction}${finer}`,
    `${zoned}${zone}:${minutes}`,
    `${zoned}${zone}${minutes}`,
  ]);
}

/** instants around every edge of every window, and some between */
function instants(): number[] {
  const found: number[] = [];
  for (const now of NOWS.map((ms) => ms * 1000)) {
    for (const span of [0, 5 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 3 * HOUR, DAY, 3 * DAY, 7 * DAY, 90 * DAY])
      for (const unit of [1, SECOND, MINUTE, HOUR, DAY]) {
        const edge = Math.floor((now - span) / unit) * unit;
        for (const instant of [edge - 1, edge, edge + 1, edge + unit - 1]) found.push(instant);
      }
    for (let i = 0; i < 150; i++) found.push(now - Math.floor(random() ** 4 * 8 * DAY) + below(HOUR / 2));
    for (let i = 0; i < 20; i++) found.push(now + below(HOUR));
  }
  const evaluated = LATEST * 1000;
  return [...new Set(found)].filter((t) => t >= evaluated - 90 * DAY && t <= evaluated + HOUR);
}

const [A, B] = ['abcdefghijklmnopqrst', 'bcdefghijklmnopqrstu'];
const PROJECTS = [
  A,
  B,
  '\\N',
  "'",
  'a\tb\\n',
  '{project:String}',
  'NULL',
  '😀é',
  ' ',
  '%41',
  '1e3',
  '12345678901234567890',
];
const FUNCTIONS = ['f', 'F', '\\N', ' ', "f' OR 1", 'é', '007', '1e2'];
const letters = (length: number): string =>
  Array.from({ length }, (_, i) => String.fromCharCode(97 + (i % 26))).join('');
/** more than 64 different references */
const SCRAMBLED = Array.from({ length: 120 }, (_, i) =>
  String.fromCharCode(97 + ((Math.imul(i + 1, 2_654_435_761) >>> 8) % 26)),
).join('');
const projectValue = (project: string): Json => (/^\d/.test(project) && random() < 0.7 ? num(project) : project);
/** an object, the first of a list, or with a duplicate that does not count */
const container = (object: Members): Json =>
  pick<Json>([object, object, [object], [object, obj(['url', 'x'])], object]);
const twice = (key: string, value: Json): [string, Json][] =>
  random() < 0.1
    ? [
        [key, value],
        [key, 'second'],
      ]
    : [[key, value]];

function edge(micros: number, offset: number): Event {
  const url = pick<Json>([
    `https://${A}.supabase.co/rest/v1/x`,
    `https://${B}.supabase.co/`,
    `https://${letters(21)}.co/`,
    `${A}${A}`,
    `https://x/${A}/${B}/${A}`,
    `z${letters(200)}`,
    `${SCRAMBLED}${A}`,
    A.slice(1),
    A.toUpperCase(),
    `line\n${A}\u0000`,
    'https://\ud800/',
    '',
    null,
    num('5'),
    [A],
  ]);
  const path = pick<Json>([
    '/rest/v1',
    '/auth/rest',
    '/storage/realtime/rest/auth',
    '/REST',
    'rest',
    '',
    null,
    num('1'),
    ['/rest'],
    '/re\u0000st/auth',
  ]);
  const request = obj(...twice('url', url), ...twice('path', path));
  const project = pick(PROJECTS);
  return {
    micros,
    offset,
    json: obj(
      ...twice('project', projectValue(project)),
      ['timestamp', timestamp(micros)],
      ...pick<[string, Json][]>([
        [],
        [['id', pick<Json>(['a', 'B', '', null, num('7'), num('12345678901234567890'), true, ['x']])]],
      ]),
      ...pick<[string, Json][]>([
        [['event_message', 'm']],
        [
          ['message', 'n'],
          ['event_message', null],
        ],
        [
          ['event_message', ''],
          ['message', 'n'],
        ],
        [],
      ]),
      ...twice(
        'metadata',
        container(
          obj(
            ['request', container(request)],
            ['project', 'elsewhere'],
            ['n', num('9007199254740993.10')],
            ['deep', [[obj(['a', obj()])], obj(['b', [null, obj()]]), num('-0'), num('1E400')]],
          ),
        ),
      ),
    ),
  };
}

function invocation(micros: number, offset: number): Event {
  const milliseconds = pick<Json>([
    num('12'),
    num('0'),
    num('-0'),
    num('1.5'),
    num('2e3'),
    num('1E-3'),
    num('1e400'),
    num('-1'),
    // beyond it t-digest, which keeps Float32, knows no difference
    num('3e38'),
    num('1e30'),
    '17',
    '2.5e1',
    'x',
    '',
    ' 5',
    '0x10',
    'NaN',
    'Infinity',
    '-3',
    null,
    true,
    [num('5')],
    obj(['a', num('1')]),
  ]);
  const status = pick<Json>([
    num('200'),
    num('399'),
    num('400'),
    num('4.04e2'),
    '500',
    '399',
    'x',
    null,
    num('0'),
    num('-500'),
  ]);
  const answer = obj(...twice('status_code', status));
  const response = pick<Json>([
    answer,
    answer,
    answer,
    [answer],
    [answer, 'x'],
    [],
    ['x', answer],
    'x',
    null,
    num('1'),
    [[answer]],
  ]);
  return {
    micros,
    offset,
    json: obj(
      ['project', pick(PROJECTS)],
      ['timestamp', timestamp(micros)],
      ...twice(
        'metadata',
        container(
          obj(
            ['project_ref', projectValue(pick(PROJECTS))],
            ['project', pick(PROJECTS)],
            ...pick<[string, Json][]>([
              [['function_id', pick(FUNCTIONS)]],
              [['function_id', pick<Json>([null, '', num('1e2'), num('7'), true, ['f']])]],
              [],
            ]),
            ['response', response],
            ...twice('execution_time_ms', milliseconds),
          ),
        ),
      ),
    ),
  };
}

const SERIES: Readonly<Record<string, readonly [unit: number, span: number]>> = {
  '5min': [SECOND, 5 * MINUTE],
  '15min': [MINUTE, 15 * MINUTE],
  '1hr': [MINUTE, HOUR],
  '1day': [HOUR, DAY],
  '7day': [DAY, 7 * DAY],
  '1DAY ': [HOUR, DAY],
};

interface Buckets {
  readonly timestamp: number;
  readonly times: readonly number[];
  readonly count: number;
  readonly error_count: number;
}

function seriesOf(
  events: readonly Event[],
  project: string,
  functionId: string,
  interval: string,
  now: number,
): Buckets[] {
  const [unit, span] = SERIES[interval]!;
  const mine = events.filter(({ json }) => {
    const metadata = objectIn(memberOf(json, 'metadata'));
    return (
      textOf(memberOf(metadata, 'project_ref')) === project &&
      objectIn(memberOf(metadata, 'response')) !== undefined &&
      (functionId === '' || (textOf(memberOf(metadata, 'function_id')) ?? '') === functionId)
    );
  });
  const rows: Buckets[] = [];
  for (let from = Math.floor((now - span) / unit) * unit; from <= now; from += unit) {
    const inside = mine.filter(({ micros }) => micros >= from && micros < from + unit);
    const times = inside
      .map(({ json }) => numberOf(at(json, 'metadata.execution_time_ms')))
      .filter((t) => t !== undefined && t >= 0)
      // -0 is stored as 0
      .map((t) => t! + 0);
    rows.push({
      timestamp: from,
      times: times.toSorted((a, b) => a - b),
      count: inside.length,
      error_count: inside.filter(({ json }) => (numberOf(at(json, 'metadata.response.status_code')) ?? 0) >= 400)
        .length,
    });
  }
  return rows;
}

function countsOf(
  events: readonly Event[],
  matches: (url: string) => boolean,
  unit: number,
  span: number,
  now: number,
): Row[] {
  const buckets = new Map<number, number[]>();
  for (const { json, micros } of events) {
    const url = stringOf(at(json, 'metadata.request.url'));
    if (url === undefined || micros < now - span || !matches(url)) continue;
    const from = Math.floor(micros / unit) * unit;
    const counts = buckets.get(from) ?? [0, 0, 0, 0];
    const path = stringOf(at(json, 'metadata.request.path')) ?? '';
    buckets.set(
      from,
      ['/rest', '/storage', '/auth', '/realtime'].map((mark, i) => counts[i]! + (path.includes(mark) ? 1 : 0)),
    );
  }
  return [...buckets]
    .toSorted(([a], [b]) => a - b)
    .map(([from, [rest, storage, auth, realtime]]) => ({
      timestamp: new Date(from / 1000).toISOString().slice(0, 19),
      total_rest_requests: rest,
      total_storage_requests: storage,
      total_auth_requests: auth,
      total_realtime_requests: realtime,
    }));
}

/** as text, so that digits count */
function nested(value: Json | undefined, isTop = true, inList = false): string {
  if (value === undefined || (isTop && value === null)) return '[]';
  if (Array.isArray(value)) return `[${(value as readonly Json[]).map((v) => nested(v, false, true)).join(',')}]`;
  if (isMembers(value)) {
    const kept = value.members.filter(([key], i) => value.members.findIndex(([k]) => k === key) === i);
    const object = `{${kept.map(([k, v]) => `${JSON.stringify(k)}:${nested(v, false)}`).join(',')}}`;
    return inList ? object : `[${object}]`;
  }
  const scalar =
    typeof value === 'object' && value !== null && 'digits' in value ? value.digits : JSON.stringify(value);
  return isTop ? `[${scalar}]` : scalar;
}

function entriesOf(events: readonly Event[], project: string, days: number, now: number): string[] {
  const bytes = (a: string, b: string): number => Buffer.compare(Buffer.from(a), Buffer.from(b));
  return events
    .filter(({ json, micros }) => textOf(memberOf(json, 'project')) === project && micros > now - days * DAY)
    .map((event) => ({ ...event, id: textOf(memberOf(event.json, 'id')) || `edge_logs-0-${event.offset}` }))
    .toSorted((a, b) => b.micros - a.micros || bytes(b.id, a.id) || b.offset - a.offset)
    .slice(0, 100)
    .map(({ id, micros, json }) => {
      const message = stringOf(memberOf(json, 'event_message')) ?? stringOf(memberOf(json, 'message')) ?? '';
      return `{"id":${JSON.stringify(id)},"timestamp":${micros},"event_message":${JSON.stringify(message)},"metadata":${nested(memberOf(json, 'metadata'))}}`;
    });
}
/** The same JSON with every text written alike. */
const plain = (json: string): string =>
  json.replaceAll(/"(?:[^"\\]|\\.)*"/g, (text) => JSON.stringify(JSON.parse(text)));

// one engine a project: the answers do not depend on the way to it
describe.each(modes.slice(0, 1))('%s', (mode) => {
  let engine: Engine;
  const events: Record<'edge_logs' | 'function_edge_logs', Event[]> = { edge_logs: [], function_edge_logs: [] };

  beforeAll(async () => {
    engine = await openEngine(mode);
    const put = async (source: SourceName & keyof typeof events, make: typeof edge): Promise<void> => {
      events[source] = instants()
        .flatMap((t) => [0, 1, 2].map(() => t))
        .map((t, i) => make(t, i));
      await store(
        engine.clickhouse,
        source,
        events[source].map(({ json }) => written(json)),
        { now: LATEST },
      );
    };
    await put('edge_logs', edge);
    await put('function_edge_logs', invocation);
  });
  afterAll(() => engine?.close());

  it.each(NOWS)(`odd events are answered as a recomputation says, at %i (seed ${SEED})`, async (now) => {
    const service = await startService(engine.clickhouse, engine.dataDir, {}, { clock: () => now });
    await service.ready;
    const ask = async (endpoint: string, query: Record<string, string>): Promise<{ rows: Row[]; text: string }> => {
      const reply = await call(service, endpoint, query);
      expect([reply.status, reply.status === 200 ? '' : reply.text]).toEqual([200, '']);
      return reply;
    };
    try {
      for (const project of PROJECTS)
        for (const interval of Object.keys(SERIES))
          for (const function_id of ['', pick(FUNCTIONS), '100']) {
            const { rows } = await ask('functions.invocation-stats', { project, interval, function_id });
            const expected = seriesOf(events.function_edge_logs, project, function_id, interval, now * 1000);
            const label = JSON.stringify([project, interval, function_id]);
            expect(
              rows.map(({ timestamp: t, count, error_count }) => [t, count, error_count]),
              label,
            ).toEqual(expected.map((r) => [r.timestamp, r.count, r.error_count]));
            for (const [i, { times }] of expected.entries()) expectTimes(rows[i]!, times, label);
          }
      for (const [pattern, matches] of [
        ...[A, B, letters(20).replace('a', 'q')].map((ref) => [ref, (url: string) => url.includes(ref)] as const),
        ['^https', (url: string) => url.startsWith('https')],
        ['(?i)ABCDEFGHIJKLMNOPQRST', (url: string) => url.toLowerCase().includes(A)],
        ['line.a', () => false],
        ['[^]x]bcdefghijklmnopqrst', (url: string) => /[^\]x]bcdefghijklmnopqrst/.test(url)],
        [`${A}é?`, (url: string) => url.includes(A)],
        ['[[:lower:]]{20}', (url: string) => /[a-z]{20}/.test(url)],
        ['\\x61bc', (url: string) => url.includes('abc')],
        ['line(?s:.)a', (url: string) => url.startsWith('line')],
        ['[a-z]{21}', (url: string) => /[a-z]{21}/.test(url)],
        [`${A}$|nothing`, (url: string) => url.endsWith(A)],
      ] as const)
        for (const [interval, unit, span] of [
          ['minutely', MINUTE, HOUR],
          ['hourly', HOUR, HOUR],
          ['daily', DAY, 7 * DAY],
          ['15min', MINUTE, 15 * MINUTE],
          ['30min', MINUTE, 30 * MINUTE],
          ['3hr', MINUTE, 3 * HOUR],
          ['1day', HOUR, DAY],
          ['3day', HOUR, 3 * DAY],
        ] as const) {
          const { rows } = await ask('usage.api-counts', { project: pattern, interval });
          expect(rows, `${pattern} ${interval}`).toEqual(countsOf(events.edge_logs, matches, unit, span, now * 1000));
        }
      for (const project of PROJECTS)
        for (const [project_tier, days] of [
          ['', 1],
          ['free', 1],
          ['PRO', 7],
          ['ENTERPRISE', 90],
        ] as const) {
          const { text } = await ask('logs.all', { project, project_tier });
          const expected = entriesOf(events.edge_logs, project, days, now * 1000);
          expect(plain(text), `${project} ${project_tier}`).toBe(plain(`{"result":[${expected.join(',')}]}`));
        }
    } finally {
      await service.stop();
    }
  });
});

function expectTimes(row: Row, times: readonly number[], label: string): void {
  const [min, max, avg, p95, p99] = ['min', 'max', 'avg', 'p95', 'p99'].map(
    (name) => row[`${name}_execution_time`],
  ) as (number | null)[];
  if (times.length === 0) return expect([min, max, avg, p95, p99], label).toEqual([null, null, null, null, null]);
  const n = times.length;
  const [least, most] = [times[0]!, times.at(-1)!];
  expect([min, max], label).toEqual([least, most]);
  const mean = times.reduce((sum, t) => sum + t / n, 0);
  expect(Math.abs(avg! - mean), `${label} avg ${avg} ${mean}`).toBeLessThanOrEqual(mean * 1e-9);
  for (const [p, q] of [
    [p95, 0.95],
    [p99, 0.99],
  ] as const) {
    const low = times[Math.max(1, Math.floor((q - 0.01) * n)) - 1]!;
    const high = times[Math.min(n, Math.ceil((q + 0.01) * n) + 1) - 1]!;
    expect(p! >= low * (1 - 1e-6) && p! <= high * (1 + 1e-6), `${label} ${p} of ${JSON.stringify(times)}`).toBe(true);
  }
  expect(min! <= p95! && p95! <= p99! && p99! <= max!, label).toBe(true);
}
