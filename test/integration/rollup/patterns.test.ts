import * as fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { admitNew } from '../../../services/rollup/history.ts';
import { apiCounts, type StoredEvent } from '../../harness/oracle.ts';
import { edgeEvent, openWorld, type World } from './world.ts';

// An answer for any pattern equals a scan of the raw logs, whichever way it takes: the rollup, the events that overflow
// it, the scan.

const SEED = Number(process.env['SEED'] ?? 20_260_301);
const NOW = Date.parse('2026-03-01T12:34:56.789Z');
const INTERVALS = ['minutely', 'hourly', 'daily'];
const refs = ['abcdefghijklmnopqrst', 'zyxwvutsrqponmlkjihg', 'aaaaaaaaaaaaaaaaaaaa', 'qwertyuiopasdfghjklz'];

/** Distinct windows of 20 letters in the url, computed plainly. */
function windowsOf(url: string): Set<string> {
  const windows = new Set<string>();
  for (let i = 0; i + 20 <= url.length; i++)
    if (/^[a-z]{20}$/.test(url.slice(i, i + 20))) windows.add(url.slice(i, i + 20));
  return windows;
}

const lower = fc.integer({ min: 97, max: 122 }).map((c) => String.fromCharCode(c));
const letters = (minLength: number, maxLength: number): fc.Arbitrary<string> =>
  fc.array(lower, { minLength, maxLength, size: 'max' }).map((list) => list.join(''));
const ref = fc.constantFrom(...refs);
const piece = fc.oneof(
  { weight: 4, arbitrary: ref },
  { weight: 2, arbitrary: ref.map((r) => r.toUpperCase()) },
  { weight: 2, arbitrary: fc.tuple(letters(0, 6), ref, letters(0, 6)).map((parts) => parts.join('')) },
  { weight: 2, arbitrary: ref.map((r) => `%${r.charCodeAt(0).toString(16)}${r.slice(1)}`) },
  { weight: 2, arbitrary: letters(15, 30) },
  { weight: 1, arbitrary: letters(60, 120) },
  { weight: 1, arbitrary: ref.map((r) => r.slice(0, 19)) },
  {
    weight: 1,
    arbitrary: fc.constantFrom('', 'rest', 'Größe', 'a-b_c', '%20%22', '日本', '..', '\\', "'", '?x=1&y=2'),
  },
);
const url = fc
  .tuple(
    fc.oneof(
      { weight: 3, arbitrary: ref.map((r) => `${r}.supabase.co`) },
      { weight: 1, arbitrary: fc.constantFrom('api.shop.example', 'API.SHOP.EXAMPLE') },
    ),
    fc.array(piece, { maxLength: 5 }),
  )
  .map(([host, pieces]) => `https://${host}/${pieces.join('/')}`);
const path = fc
  .array(fc.constantFrom('/rest', '/storage', '/auth', '/realtime', '/v1', '/REST'), { maxLength: 4 })
  .map((parts) => parts.join(''));
const request = fc.record({ url, path, back: fc.integer({ min: -3_000_000, max: 8 * 86_400_000 }) });

const escaped = (text: string): string => text.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&');
/** Patterns that mean the same to RE2 and to JavaScript. */
const pattern = (urls: readonly string[]): fc.Arbitrary<string> => {
  const part = fc
    .tuple(fc.constantFrom(...urls), fc.nat(), fc.nat())
    .map(([u, a, b]) => u.slice(a % u.length, (a % u.length) + 1 + (b % 30)));
  return fc.oneof(
    { weight: 5, arbitrary: fc.constantFrom(...urls.flatMap((u) => [...windowsOf(u)])) },
    { weight: 1, arbitrary: letters(20, 20) },
    { weight: 3, arbitrary: part.map(escaped) },
    { weight: 1, arbitrary: fc.tuple(part, part).map(([a, b]) => `${escaped(a)}|${escaped(b)}`) },
    { weight: 1, arbitrary: part.map((p) => `${escaped(p)}.*$`) },
    { weight: 1, arbitrary: ref.map((r) => `^https://${r}\\.`) },
    { weight: 1, arbitrary: ref.map((r) => `${r.slice(0, 12)}[a-z]+`) },
    { weight: 1, arbitrary: ref.map((r) => `(?i)${r}`) },
    {
      weight: 1,
      arbitrary: fc.constantFrom(
        '[a-z]{20}',
        '[a-z]{64,}',
        '%[0-9a-f]{2}',
        '.',
        '^$',
        '/$',
        '日本',
        "'",
        '\\\\',
        '[^a-z/:.]{3}',
      ),
    },
  );
};
const regexOf = (p: string): RegExp =>
  p.startsWith('(?i)') ? new RegExp(p.slice(4), 'iu') : new RegExp(p.replaceAll('\\-', '-'), 'u');

describe(`patterns (seed ${SEED})`, { timeout: 240_000 }, () => {
  const requests = fc.sample(request, { seed: SEED, numRuns: 3_000 });
  const events: readonly (StoredEvent & { readonly url: string })[] = requests.map(({ url: u, path: p, back }) => ({
    source: 'edge_logs',
    project: 'p',
    timestamp: (NOW - back) * 1000,
    content: { metadata: { request: { url: u, path: p } } },
    topic: '',
    partition: 0,
    offset: 0,
    url: u,
  }));
  let world: World;

  beforeAll(async () => {
    world = await openWorld({ now: NOW });
    await admitNew(world.context);
    await world.send(
      'edge_logs',
      requests.map(({ url: u, path: p, back }) => edgeEvent(NOW - back, u, { path: p })),
    );
  });
  afterAll(() => world.close());

  test('each window of a url is in the rollup, or the event is in the overflow, never both', async () => {
    const stored = await world.select<{ url: string; refs: string[]; refs_overflow: boolean }>(
      'SELECT url, refs, refs_overflow FROM edge_logs',
    );
    expect(stored).toHaveLength(requests.length);
    for (const row of stored) {
      const windows = windowsOf(row.url);
      expect([row.refs_overflow, row.refs.toSorted()], row.url).toEqual(
        windows.size > 16 ? [true, []] : [false, [...windows].toSorted()],
      );
    }
    expect(stored.filter((row) => row.refs_overflow).length).toBeGreaterThan(20);
  });

  test('400 of them answer what a scan answers, by all routes', async () => {
    const patterns = new Set(
      fc.sample(pattern(requests.slice(0, 300).map((r) => r.url)), { seed: SEED, numRuns: 400 }),
    );
    const routes = { rollup: 0, overflow: 0, both: 0, scan: 0, nothing: 0 };
    for (const p of patterns) {
      const js = regexOf(p);
      const matching = events.filter((e) => js.test(e.url));
      const interval = INTERVALS[patterns.size % INTERVALS.length]!;
      for (const i of [interval, 'daily'])
        expect(await world.ask('usage.api-counts', { project: p, interval: i }), `${p} ${i}`).toEqual(
          apiCounts(matching, i, () => true, NOW * 1000),
        );
      const overflowing = matching.filter((e) => windowsOf(e.url).size > 16).length;
      if (matching.length === 0) routes.nothing++;
      else if (!/^[a-z]{20}$/.test(p)) routes.scan++;
      else if (overflowing === 0) routes.rollup++;
      else if (overflowing === matching.length) routes.overflow++;
      else routes.both++;
    }
    for (const [route, count] of Object.entries(routes))
      expect(count, `${route} of ${JSON.stringify(routes)}`).toBeGreaterThan(5);
  });

  test('a literal reads neither the raw table nor, without overflowing events, anything that grows with other traffic', async () => {
    for (const interval of INTERVALS) {
      const read = (await world.explain('usage.api-counts', { project: refs[0]!, interval })).map((row) => row.table);
      expect(read).not.toContain('edge_logs');
    }
  });
});

describe('windows', () => {
  const COUNTS = [0, 1, 2, 15, 16, 17, 18, 5_000];
  let world: World;

  beforeAll(async () => {
    world = await openWorld({ now: NOW });
    await admitNew(world.context);
  });
  afterAll(() => world.close());

  /** Letters with as many distinct windows as they can have, a different text for each `stream`. */
  function run(length: number, stream: number): string {
    let state = 1_000 + stream;
    return Array.from({ length }, () =>
      String.fromCharCode(97 + ((state = (state * 48_271) % 2_147_483_647) % 26)),
    ).join('');
  }

  const counted = async (project: string, interval = 'minutely'): Promise<number> =>
    (await world.ask('usage.api-counts', { project, interval })).reduce(
      (sum, row) => sum + Number(row['total_rest_requests']),
      0,
    );
  const stored = async (id: number): Promise<{ refs: number; overflow: boolean }> =>
    (
      await world.select<{ refs: number; overflow: boolean }>(
        `SELECT toUInt32(length(refs)) AS refs, refs_overflow AS overflow FROM edge_logs WHERE id = 'e${id}'`,
      )
    )[0]!;

  test.each(COUNTS)('a url with %i of them is counted once for each', async (count) => {
    const text = count === 0 ? `/${run(19, 1)}/${run(19, 2)}A${run(5, 3)}` : `/${run(19 + count, 100 + count)}`;
    const at = NOW - 60_000 - count;
    await world.send('edge_logs', [edgeEvent(at, `https://x.example/rest${text}`)]);
    expect(await stored(at)).toEqual(count > 16 ? { refs: 0, overflow: true } : { refs: count, overflow: false });
    const windows = [...windowsOf(text)];
    expect(windows).toHaveLength(count);
    for (const w of [...windows.slice(0, 3), ...windows.slice(-3), ...windows.slice(7, 10)])
      expect([await counted(w), await counted(w, 'daily'), await counted(`${w}|never`)], w).toEqual([1, 1, 1]);
  });

  test('the same window twice counts the request once', async () => {
    const [w, at] = [run(20, 7), NOW - 30_000];
    await world.send('edge_logs', [edgeEvent(at, `https://${w}.example/rest/${w}/${w}?x=${w}`)]);
    expect(await stored(at)).toEqual({ refs: 1, overflow: false });
    expect([await counted(w), await counted(w, 'daily'), await counted(`${w}.`)]).toEqual([1, 1, 1]);
  });

  test('16 windows, all of them twice, do not overflow', async () => {
    const [text, at] = [run(35, 9), NOW - 31_000];
    await world.send('edge_logs', [edgeEvent(at, `https://x.example/rest/${text}/${text}`)]);
    expect(await stored(at)).toEqual({ refs: 16, overflow: false });
    expect(await counted(text.slice(15))).toBe(1);
  });

  test('overlapping windows each count', async () => {
    const [text, at] = [run(26, 11), NOW - 32_000];
    await world.send('edge_logs', [edgeEvent(at, `https://x.example/rest/${text}`)]);
    for (let i = 0; i <= 6; i++) expect(await counted(text.slice(i, i + 20)), String(i)).toBe(1);
    expect(await counted(text.slice(0, 21))).toBe(1);
    expect(await counted(`${text.slice(0, 19)}z`)).toBe(text[19] === 'z' ? 1 : 0);
  });

  test('a text of more than 256 letters is not taken apart, whatever its windows are; it is counted once, and costs no more than others', async () => {
    const texts = ['m'.repeat(256), 'n'.repeat(257), `o${run(1_000_000, 13)}`];
    await world.send(
      'edge_logs',
      texts.map((text, i) => edgeEvent(NOW - 33_000 - i, `https://x.example/rest/${text}`)),
    );
    expect(await Promise.all(texts.map((_, i) => stored(NOW - 33_000 - i)))).toEqual([
      { refs: 1, overflow: false },
      { refs: 0, overflow: true },
      { refs: 0, overflow: true },
    ]);
    for (const text of texts)
      expect([await counted(text.slice(0, 20)), await counted(text.slice(-20), 'daily')]).toEqual([1, 1]);
  });
});
