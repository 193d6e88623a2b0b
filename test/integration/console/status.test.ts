import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { INTEGERS_AS_TEXT, select } from '../../../common/clickhouse/clickhouse.ts';
import { commandRoutes } from '../../../common/command/command-routes.ts';
import { readSettings } from '../../../common/config/settings.ts';
import { createRegistry } from '../../../common/metrics.ts';
import { startConsole, type Console } from '../../../services/console/console.ts';
import type { Status } from '../../../services/console/wire.ts';
import { deadLettersCommand } from '../../../services/ingest/commands/dead-letters.ts';
import { createIngestMetrics } from '../../../services/ingest/metrics.ts';
import type { QueryService } from '../../../services/query/service.ts';
import { whenOpen } from '../../../services/query/when-open.ts';
import { openTestStore } from '../../harness/ingest-store.ts';
import {
  API_KEY,
  call,
  logger,
  modes,
  openEngine,
  send,
  startService,
  store,
  type Engine,
  type Reply,
} from '../query/service.ts';

const COMMAND = '/api/commands/dead-letters';

// What /api/status and the command dead-letters say equals the tables, on every engine, whether ingest runs in the
// process or elsewhere.
describe.each(modes)('beside the engine %s', (mode) => {
  let engine: Engine;
  let service: QueryService;
  let console_: Console;
  let now: number;
  const admin = { 'x-api-key': API_KEY };
  const get = (path: string, key = API_KEY): Promise<Reply> =>
    send(service.address, path, { headers: { 'x-api-key': key } });
  const post = (path: string, body: unknown): Promise<Reply> =>
    send(service.address, path, {
      method: 'POST',
      headers: admin,
      body: typeof body === 'string' ? body : JSON.stringify(body),
    });
  const status = async (query = ''): Promise<Status> =>
    (JSON.parse((await get(`/api/status${query}`)).text) as { result: Status }).result;
  const registry = createRegistry();

  beforeAll(async () => {
    engine = await openEngine(mode);
    const at = Date.now();
    now = at;
    const settings = readSettings({ API_KEY, PORT: '0', DATA_DIR: engine.dataDir });
    const notConnected = whenOpen(new Promise(() => undefined));
    const context = { clickhouse: engine.clickhouse, settings, logger };
    const [{ documented: _, ...early } = expect.fail()] = commandRoutes({ ...context, clickhouse: notConnected }, [
      deadLettersCommand,
    ]);
    console_ = startConsole({ clickhouse: engine.clickhouse, settings, registry, logger, clock: () => now });
    service = await startService(
      engine.clickhouse,
      engine.dataDir,
      {},
      {
        registry,
        routes: [
          ...console_.routes,
          ...commandRoutes(context, [deadLettersCommand]),
          { ...early, path: '/api/not-connected' },
        ],
      },
    );
    await ledger('edge_logs', 0, 500, 20);
    await ledger('edge_logs', 500, 30, 0);
    await ledger('auth_logs', 0, 40, 40);
    await store(
      engine.clickhouse,
      'auth_logs',
      Array.from({ length: 40 }, (_, i) => (i < 25 ? `[${i}]` : '{')),
      { now: at },
    );
    // a replay that was announced and killed has replayed nothing
    await engine.clickhouse.execute({
      sql: 'INSERT INTO dead_letter_replays (kafka_topic, kafka_incarnation, kafka_partition, kafka_offset, done) SELECT kafka_topic, kafka_incarnation, kafka_partition, kafka_offset, false FROM dead_letters ORDER BY kafka_offset LIMIT 1',
    });
  });
  afterAll(async () => {
    await service?.stop();
    await console_?.stop();
    await engine?.close();
  });

  /** A row of the ledger, as ingest writes it last. */
  async function ledger(topic: string, first: number, messages: number, bad: number): Promise<void> {
    await engine.clickhouse.execute({
      sql: 'INSERT INTO batches (topic, incarnation, partition, first, last, source, stored, dead_lettered, null_values, no_records, gap, evaluated_at, end_record_time, end_checksum) SELECT {topic:String}, 1, 0, {first:UInt64}, {last:UInt64}, {topic:String}, {stored:UInt32}, {bad:UInt32}, 0, 0, 0, now64(3), {time:Int64}, 1',
      params: { topic, first, last: first + messages - 1, stored: messages - bad, bad, time: now - 2_000 },
    });
  }

  test('the events of each topic are those of the ledger, of the last hour and of each step; a row that was written twice counts once', async () => {
    await ledger('edge_logs', 500, 30, 0);
    // everything is in a step that is over
    now = Date.now() + 20_000;
    const { result } = { result: await status() };
    const rows = await select<{ topic: string; events: string }>(
      engine.clickhouse,
      'SELECT topic, sum(stored) + sum(dead_lettered) AS events FROM batches FINAL GROUP BY topic ORDER BY topic',
      {},
      INTEGERS_AS_TEXT,
    );
    expect(result.system!.topics.map(({ topic, events_last_hour: events }) => ({ topic, events }))).toEqual(
      rows.map(({ topic, events }) => ({ topic, events: Number(events) })),
    );
    for (const { events, events_last_hour: hour } of result.system!.topics)
      expect(events.reduce<number>((a, b) => a + (b ?? 0), 0)).toBe(hour);
    expect(result.steps).toBe(360);
    expect(result.system!.topics[0]!.age_ms.at(-1)).toBeGreaterThan(2_000);
    expect(result.system!.topics[0]!.lag_now).toBeNull();
    expect(result.system).toMatchObject({ ingest_here: false, store_answers: true, paused: [] });
    expect(result.system!.rollups).toEqual(
      ['api_requests', 'function_invocations'].map((name) => ({
        name,
        version: 1,
        state: 'new',
        pending: 0,
        repairs: 0,
        differences: 0,
        audited_to: null,
      })),
    );
    expect(result.system!.alerts.find((a) => a.alert === 'SluiceLag')).toMatchObject({
      state: 'unknown',
      reason: expect.stringContaining('another process') as string,
    });
  });

  test('dead letters are counted by reason and step, and in all, as the table has them', async () => {
    const { system } = await status();
    expect(system!.dead_letter_totals).toEqual([
      { topic: 'auth_logs', reason: 'malformed_json', letters: 15, replayed: 0 },
      { topic: 'auth_logs', reason: 'not_an_event', letters: 25, replayed: 0 },
    ]);
    expect(
      system!.dead_letters.map(({ reason, letters }) => ({
        reason,
        letters: letters.reduce<number>((a, b) => a + (b ?? 0), 0),
      })),
    ).toEqual([
      { reason: 'malformed_json', letters: 15 },
      { reason: 'not_an_event', letters: 25 },
    ]);
    expect(system!.alerts.find((a) => a.alert === 'SluiceDeadLetters')).toMatchObject({
      subjects: [{ name: 'auth_logs' }, { name: 'edge_logs' }],
    });
  });

  test('a repair that failed is counted as soon as its outcome is written', async () => {
    const request = (outcome: string): Promise<void> =>
      engine.clickhouse.execute({
        sql: "INSERT INTO rollup_repairs (source, period, from_time, to_time, requested_at, outcome) SELECT 'edge_logs', '2026-01-01 00:00:00', '2026-01-01 00:00:00', '2026-01-01 00:01:00', '2026-01-02 00:00:00', {outcome:String}",
        params: { outcome },
      });
    await request('');
    await request('differs');
    now += 20_000;
    const { rollups } = (await status()).system!;
    expect(rollups.find((r) => r.name === 'api_requests')).toMatchObject({ repairs: 1, differences: 1 });
  });

  test('a paused partition fires at once and comes with its section of the runbook, until it goes on', async () => {
    await engine.clickhouse.execute({
      sql: "INSERT INTO paused_partitions SELECT 'edge_logs', 2, 1, 10, 6, 8, now64(3), now64(3) + INTERVAL 1 HOUR, 1",
    });
    now += 1_000;
    const paused = (await status()).system!;
    expect(paused.paused).toMatchObject([{ topic: 'edge_logs', partition: 2, bad: 6, messages: 8 }]);
    expect(paused.alerts[0]).toMatchObject({
      alert: 'SluicePartitionPaused',
      state: 'firing',
      subjects: [{ name: 'edge_logs partition 2' }],
      runbook: expect.stringContaining('BAD_SHARE_PERCENT') as string,
    });
    await engine.clickhouse.execute({
      sql: "INSERT INTO paused_partitions SELECT 'edge_logs', 2, 1, 10, 6, 8, now64(3), now64(3), 2",
    });
    now += 1_000;
    const after = (await status()).system!;
    expect(after.paused).toEqual([]);
    expect(after.alerts.find((a) => a.alert === 'SluicePartitionPaused')).toMatchObject({ state: 'ok' });
  });

  test('only the steps that a caller asks for are sent', async () => {
    const whole = await status();
    const since = whole.from + 350 * whole.step_seconds;
    const part = await status(`?since=${since}`);
    expect([part.from, part.steps]).toEqual([since, 10]);
    expect(part.system!.topics[0]!.events).toEqual(whole.system!.topics[0]!.events.slice(-10));
    expect((await get('/api/status?since=yesterday')).error).toMatchObject({
      code: 'invalid_parameter',
      errors: [{ parameter: 'since' }],
    });
    expect((await status('?since=99999999999')).steps).toBe(0);
  });

  test('many who look make one read', async () => {
    now += 1_000;
    const answers = await Promise.all(Array.from({ length: 20 }, () => status()));
    expect(new Set(answers.map((a) => a.system!.store_seen_at)).size).toBe(1);
  });

  test('the lag is known where ingest runs in the process', async () => {
    const own = createRegistry();
    createIngestMetrics(own).lag.set({ topic: 'edge_logs', partition: 1 }, 7);
    const beside = startConsole({
      clickhouse: engine.clickhouse,
      settings: readSettings({ API_KEY }),
      registry: own,
      logger,
      clock: () => now,
    });
    const { json } = await beside.routes[0]!.handle({
      params: {},
      query: new URLSearchParams(),
      headers: {},
      body: Buffer.alloc(0),
      key: { id: 'k', name: 'k', scopes: ['admin'], projects: [] },
      address: '127.0.0.1',
      arrivedAt: '127.0.0.1:4000',
      signal: new AbortController().signal,
    });
    expect((json as { result: Status }).result.system).toMatchObject({
      ingest_here: true,
      topics: [
        { topic: 'auth_logs', lag_now: null },
        { topic: 'edge_logs', lag_now: 7 },
      ],
    });
    await beside.stop();
  });

  test('a key without the scope admin sees itself and the endpoints that it may call', async () => {
    const made = JSON.parse(
      (await post('/api/keys', { name: 'some', scopes: ['query:logs.all'], projects: ['p'] })).text,
    ) as { id: string; key: string };
    await call(service, 'logs.all', { project: 'p' });
    const { result } = JSON.parse((await get('/api/status', made.key)).text) as { result: Status };
    expect(result).toMatchObject({
      system: null,
      key: { id: made.id, name: 'some', scopes: ['query:logs.all'], projects: ['p'], expires_at: null },
    });
    const asked = { method: 'POST', headers: { 'x-api-key': made.key }, body: '{}' };
    expect((await send(service.address, COMMAND, asked)).error).toMatchObject({ code: 'forbidden' });
    expect((await send(service.address, '/api/status')).error).toMatchObject({ code: 'unauthorized' });
  });

  const command = async (args: unknown): Promise<unknown> => {
    const { result, error } = JSON.parse((await post(COMMAND, args)).text) as { result?: unknown; error?: unknown };
    return result ?? { error };
  };

  test('dead letters are listed by pages, shown with their bytes, and what cannot be replayed says why', async () => {
    const offsets: number[] = [];
    let after: unknown;
    do {
      const page = (await command({ action: 'list', filter: { topic: 'auth_logs' }, limit: 15, after })) as {
        dead_letters: { offset: number; partition: number; reason: string }[];
        next: object | null;
      };
      offsets.push(...page.dead_letters.map((l) => l.offset));
      after = page.next;
    } while (after !== null);
    expect(offsets).toEqual(Array.from({ length: 40 }, (_, i) => i));
    const at = { topic: 'auth_logs', partition: 0, offset: '7' };
    const letter = (await command({ action: 'show', at })) as { value_base64: string };
    expect(letter).toMatchObject({
      topic: 'auth_logs',
      partition: 0,
      offset: 7,
      reason: 'not_an_event',
      key_base64: null,
      headers: [],
    });
    expect(Buffer.from(letter.value_base64, 'base64').toString()).toBe('[7]');
    expect(await command({ action: 'replay', at })).toEqual({ replayed: { not_an_event: 1 }, next: null });
    const all = { action: 'replay_all', filter: { topic: 'auth_logs', reason: 'malformed_json' }, limit: 10 };
    const some = (await command(all)) as { next: object };
    expect(some).toEqual({ replayed: { malformed_json: 10 }, next: { incarnation: 1, ...at, offset: '34' } });
    expect(await command({ ...all, after: some.next })).toEqual({ replayed: { malformed_json: 5 }, next: null });
  });

  test('of a topic that was recreated, the letter of a row of the list is shown and replayed, not that of its last life', async () => {
    for (const [incarnation, value] of [
      [1, '[1]'],
      [2, '[2]'],
    ] as const)
      await openTestStore(engine.clickhouse, { source: 'realtime_logs', partition: 0 }).insertBatch({
        incarnation,
        evaluatedAt: now,
        records: [{ offset: 0, time: now, key: null, value: Buffer.from(value), headers: [] }],
      });
    // the batch of the second life is not finished
    await ledger('realtime_logs', 0, 1, 1);
    const at = { topic: 'realtime_logs', partition: 0, offset: '0' };
    const shown = async (life: object): Promise<unknown> => {
      const letter = (await command({ action: 'show', at: { ...at, ...life } })) as {
        incarnation: number;
        value_base64: string;
      };
      return [letter.incarnation, Buffer.from(letter.value_base64, 'base64').toString()];
    };
    expect(await shown({ incarnation: 1 })).toEqual([1, '[1]']);
    expect(await shown({ incarnation: 2 })).toEqual([2, '[2]']);
    expect(await shown({})).toEqual([2, '[2]']);
    const replayed = (incarnation: number): Promise<unknown> =>
      command({ action: 'replay', at: { ...at, incarnation } });
    expect(await replayed(1)).toEqual({ replayed: { not_an_event: 1 }, next: null });
    expect(await replayed(2)).toEqual({ replayed: { unfinished: 1 }, next: null });
    expect(await replayed(3)).toMatchObject({ error: { code: 'conflict' } });
  });

  test('of status, a parameter that is given twice is refused', async () => {
    const { error } = await get('/api/status?since=1&since=1');
    expect([error.code, error.errors?.map((e) => e.parameter)]).toEqual(['invalid_parameter', ['since']]);
  });

  const letter = { topic: 'auth_logs', partition: 0, offset: '7' };
  test.each<[string | object, string]>([
    ['{', 'invalid_request'],
    ['[]', 'invalid_request'],
    [{ action: 'list', filter: { reason: 'bad' }, limit: 1 }, 'invalid_request'],
    [{ action: 'list', filter: { open: 'maybe' }, limit: 1 }, 'invalid_request'],
    [{ action: 'list', filter: {}, limit: 0 }, 'invalid_request'],
    [{ action: 'list', filter: {}, limit: 1, after: letter }, 'invalid_request'],
    [{ action: 'show', at: { ...letter, offset: '999999' } }, 'conflict'],
    [{ action: 'show', at: { ...letter, partition: 'x' } }, 'invalid_request'],
    [{ action: 'show', at: { ...letter, incarnation: 2 } }, 'conflict'],
    // ClickHouse's UInt32 takes 2 ** 32 for 0, and partition 0 has a letter there
    [{ action: 'show', at: { ...letter, incarnation: 2 ** 32 } }, 'invalid_request'],
    [{ action: 'replay', at: { ...letter, partition: 2 ** 32 } }, 'invalid_request'],
    [{ action: 'replay', at: { ...letter, incarnation: '1' } }, 'invalid_request'],
    [{ action: 'replay', at: { topic: 't', offset: '1' } }, 'invalid_request'],
    [{ action: 'replay', at: { ...letter, offset: '-1' } }, 'invalid_request'],
    [{ action: 'replay', at: { ...letter, topic: 't' } }, 'conflict'],
    [{ action: 'replay_all', filter: {} }, 'invalid_request'],
    [{ action: 'replay_all', filter: { topic: 't' }, limit: true }, 'invalid_request'],
  ])('the command dead-letters with %j is refused as %s', async (args, code) => {
    expect((await post(COMMAND, args)).error.code).toBe(code);
  });

  test('while ClickHouse is unavailable, a route answers 503 and when to try again', async () => {
    const { status, error, headers } = await post('/api/not-connected', { action: 'list', filter: {}, limit: 1 });
    expect([status, error.code, headers['retry-after']]).toEqual([503, 'unavailable', '5']);
  });

  test('a large answer is compressed where the caller accepts it, and / and its files need no key', async () => {
    expect(
      (await send(service.address, '/api/status', { headers: { ...admin, 'accept-encoding': 'gzip' } })).headers[
        'content-encoding'
      ],
    ).toBe('gzip');
    const page = await send(service.address, '/');
    expect(page.headers).toMatchObject({
      'content-type': 'text/html; charset=utf-8',
      'cache-control': 'no-cache',
      'content-security-policy': expect.stringContaining("script-src 'self'") as string,
    });
    expect(page.headers['content-security-policy']).not.toContain('unsafe');
    expect(
      (await send(service.address, '/', { headers: { 'if-none-match': String(page.headers['etag']) } })).status,
    ).toBe(304);
    const script = /src="([^"]+)"/.exec(page.text)![1]!;
    expect((await send(service.address, script, { headers: { 'accept-encoding': 'gzip, br' } })).headers).toMatchObject(
      {
        'content-encoding': 'br',
        'cache-control': 'public, max-age=31536000, immutable',
        'x-content-type-options': 'nosniff',
      },
    );
    expect((await send(service.address, script.replace(/console\/\w+/, 'console/0'))).status).toBe(404);
    expect((await send(service.address, '/', { method: 'POST' })).error).toMatchObject({ code: 'method_not_allowed' });
    expect((await send(service.address, '/', { method: 'HEAD' })).text).toBe('');
  });
});
