import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { QueryService } from '../../../services/query/service.ts';
import { waitFor } from '../../harness/wait-for.ts';
import { temporaryFolder } from '../../harness/clickhouse.ts';
import {
  API_KEY,
  ENDLESS,
  call,
  counting,
  openEngine,
  send,
  startService,
  store,
  writeEndpoint,
  type Counted,
  type Engine,
} from './service.ts';

/** The life of an answer: through a socket, over a real engine behind a real connection, with the clock in hand. */
const START = Date.UTC(2026, 2, 1, 12, 0, 0);
const STATS = 'functions.invocation-stats';

let engine: Engine;
let clickhouse: Counted;
let service: QueryService;
let now = START;
const folder = temporaryFolder();

const at = (seconds: number): void => {
  now = START + seconds * 1000;
};
/** x-cache, age and status of a call */
const ask = async (project: string, more: Record<string, string> = {}) => {
  const { status, headers, text } = await call(service, STATS, { project, ...more });
  return { status, cache: headers['x-cache'], age: headers['age'], control: headers['cache-control'], text };
};

beforeAll(async () => {
  engine = await openEngine('server');
  await store(
    engine.clickhouse,
    'function_edge_logs',
    [
      JSON.stringify({
        timestamp: START * 1000,
        metadata: { project_ref: 'p', function_id: 'f', execution_time_ms: 5, response: { status_code: 200 } },
      }),
    ],
    { now: START },
  );
  writeEndpoint(folder.path, 'endless', ENDLESS, 'cache_seconds: 900\nmax_seconds: 30\n');
});
afterAll(async () => {
  await engine?.close();
  folder.remove();
});
beforeEach(async () => {
  now = START;
  clickhouse = counting(engine.clickhouse);
  service = await startService(
    clickhouse,
    engine.dataDir,
    { ENDPOINTS_DIR: folder.path, QUERY_MAX_ROWS_READ: '1000000000000' },
    { clock: () => now },
  );
  await service.ready;
});
afterEach(() => service.stop());

describe('an answer', () => {
  it('is kept for 900 s', async () => {
    expect(await ask('p')).toMatchObject({ status: 200, cache: 'miss', age: '0', control: 'private, max-age=900' });
    at(100);
    expect(await ask('p')).toMatchObject({ status: 200, cache: 'hit', age: '100', control: 'private, max-age=900' });
    expect(clickhouse.queries()).toBe(1);
    at(100 + 899);
    await ask('p');
    at(100 + 899 + 900);
    expect(await ask('p')).toMatchObject({ cache: 'miss', age: '0' });
  });

  it('is fetched anew every 300 s while it is asked for, and no caller waits', async () => {
    await ask('p');
    for (const round of [1, 2, 3]) {
      at(round * 300);
      await waitFor(() => clickhouse.queries() === round + 1, 5_000, 'a requery');
      await waitFor(async () => (await ask('p')).age === '0', 5_000, 'its answer');
      expect((await ask('p')).cache).toBe('hit');
    }
    at(3 * 300 + 299);
    expect(await ask('p')).toMatchObject({ cache: 'hit', age: '299' });
  });

  it('is left alone when nobody has asked for 900 s', async () => {
    await ask('p');
    for (const seconds of [300, 600, 900]) {
      const before = clickhouse.queries();
      at(seconds);
      await waitFor(() => clickhouse.queries() === before + 1, 5_000, 'a requery');
    }
    at(1200);
    await ask('another');
    const before = clickhouse.queries();
    at(1205);
    await new Promise((resolve) => {
      setTimeout(resolve, 1_500);
    });
    expect(clickhouse.queries()).toBe(before);
  });

  it('of logs.all is never kept', async () => {
    for (const expected of [1, 2]) {
      expect((await call(service, 'logs.all', { project: 'p' })).headers['x-cache']).toBe('none');
      expect(clickhouse.queries()).toBe(expected);
    }
  });

  it('that is an error is not kept', async () => {
    // a pattern that is none is refused before there is a query
    for (let i = 0; i < 2; i++)
      expect((await call(service, 'usage.api-counts', { project: '(', interval: 'daily' })).status).toBe(400);
    expect(clickhouse.queries()).toBe(0);
    await engine.face?.inject({ action: 'error', code: 202, match: 'execution_quantiles' });
    expect(await ask('error')).toMatchObject({ status: 503 });
    expect(await ask('error')).toMatchObject({ status: 200, cache: 'miss' });
    expect(clickhouse.queries()).toBe(2);
  });
});

describe('single flight', () => {
  it('1,000 callers at once make one query', async () => {
    const letGo = clickhouse.hold();
    const calls = Promise.all(Array.from({ length: 1_000 }, () => call(service, STATS, { project: 'crowd' })));
    // the question itself is one more
    await waitFor(
      async () =>
        Number(/^sluice_query_requests_in_flight (\d+)$/m.exec((await send(service.address, '/metrics')).text)?.[1]) ===
        1_001,
      30_000,
      'all of them wait',
    );
    letGo();
    const replies = await calls;
    expect(replies.map((r) => r.status).every((s) => s === 200)).toBe(true);
    expect(new Set(replies.map((r) => r.text)).size).toBe(1);
    expect(clickhouse.queries()).toBe(1);
    expect(new Set(replies.map((r) => r.headers['x-cache']))).toEqual(new Set(['miss']));
  });

  it('one who leaves takes nothing from the others; when the last one leaves, the query is ended', async () => {
    const running = async (): Promise<number> =>
      Number(/^sluice_query_running (\d+)$/m.exec((await send(service.address, '/metrics')).text)?.[1]);
    const callers = [new AbortController(), new AbortController()];
    const ended = callers.map((c) =>
      send(service.address, '/api/endpoints/endless?project=p', {
        headers: { 'x-api-key': API_KEY },
        signal: c.signal,
      }).then(
        () => 'answered',
        () => 'left',
      ),
    );
    await waitFor(async () => (await running()) === 1, 5_000, 'the query runs');
    callers[0]?.abort();
    await new Promise((resolve) => {
      setTimeout(resolve, 300);
    });
    expect(await running()).toBe(1);
    callers[1]?.abort();
    await waitFor(async () => (await running()) === 0, 5_000, 'the query has ended');
    expect(await Promise.all(ended)).toEqual(['left', 'left']);
    const processes = async (): Promise<string> =>
      (
        await engine.clickhouse.read({
          sql: "SELECT count() FROM system.processes WHERE query LIKE '%sipHash64(number%' AND query NOT LIKE '%system.processes%'",
          format: 'TSV',
        })
      ).body
        .toString()
        .trim();
    await waitFor(async () => (await processes()) === '0', 10_000, 'the engine has ended it too');
  });
});

describe('with ClickHouse away', () => {
  let down = false;
  const goDown = async (): Promise<void> => {
    await engine.face?.down();
    down = true;
  };
  const comeUp = async (): Promise<void> => {
    if (down) await engine.face?.up();
    down = false;
  };
  afterEach(comeUp);

  it('an expired answer is served stale, for an hour; then 503; then all is well again', async () => {
    const fresh = await ask('p');
    at(600);
    await waitFor(async () => (await ask('p')).age === '0', 5_000, 'a requery');
    await goDown();
    at(600 + 899);
    expect(await ask('p')).toMatchObject({ status: 200, cache: 'hit', age: '899' });
    at(600 + 900);
    expect(await ask('p')).toMatchObject({ status: 200, cache: 'stale', age: '900', control: 'no-cache' });
    expect((await call(service, 'logs.all', { project: 'p' })).status).toBe(503);
    const refused = await call(service, STATS, { project: 'never asked' });
    expect([refused.status, refused.error.code, refused.headers['retry-after']]).toEqual([503, 'unavailable', '5']);
    at(600 + 3600);
    expect(await ask('p')).toMatchObject({ status: 200, cache: 'stale', age: '3600' });
    at(600 + 3601);
    expect(await ask('p')).toMatchObject({ status: 503 });
    const ready = await send(service.address, '/readyz');
    expect([ready.status, JSON.parse(ready.text)]).toEqual([
      503,
      {
        status: 'not_ready',
        checks: { clickhouse: 'does not answer', endpoints: 'ok', keys: 'could not be loaded for an hour' },
      },
    ]);
    expect((await send(service.address, '/livez')).status).toBe(200);
    await comeUp();
    await waitFor(async () => (await ask('p')).status === 200, 10_000, 'it is back');
    expect(JSON.parse((await ask('p')).text).result).toHaveLength(JSON.parse(fresh.text).result.length);
  });

  it('a requery that fails leaves the answer as it is', async () => {
    await ask('p');
    await goDown();
    at(300);
    await waitFor(
      async () =>
        /requeries_total\{endpoint="functions.invocation-stats",outcome="failed"\} [1-9]/.test(
          (await send(service.address, '/metrics')).text,
        ),
      5_000,
      'a failed requery',
    );
    expect(await ask('p')).toMatchObject({ status: 200, cache: 'hit', age: '300' });
  });

  it('an answer that is cut off in the middle is an error, not a part', async () => {
    await engine.face?.inject({ action: 'cut_response', match: 'execution_quantiles' });
    expect(await ask('cut')).toMatchObject({ status: 503 });
    await engine.face?.inject({ action: 'late_exception', match: 'execution_quantiles' });
    expect([500, 503, 504]).toContain((await ask('late')).status);
  });
});
