import { randomUUID } from 'node:crypto';
import { connect, type Socket } from 'node:net';
import { brotliCompressSync, deflateSync, gunzipSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { migrate } from '../../../common/clickhouse/migrations.ts';
import { systemClock } from '../../../common/clock.ts';
import { readSettings } from '../../../common/config/settings.ts';
import type { KafkaClient } from '../../../common/kafka/client.ts';
import { createRegistry } from '../../../common/metrics.ts';
import { startIngest, type RunningIngest } from '../../../services/ingest/service.ts';
import { startPush, type Push } from '../../../services/push/service.ts';
import type { QueryService } from '../../../services/query/service.ts';
import { openTestEmbedded, type TestClickHouse } from '../../harness/clickhouse.ts';
import { readAll, startOwnBroker, testKafka, type OwnBroker } from '../../harness/kafka.ts';
import { waitFor } from '../../harness/wait-for.ts';
import { API_KEY, call, logger, send, startService, type Reply } from '../query/service.ts';
import { vectorHealthcheck, vectorRequest, vectorSinks } from './vector.ts';

/**
 * The whole way of a pushed event, from its socket to logs.all, and every refusal, with a broker that is killed on
 * purpose.
 */
const MiB = 1024 * 1024;
const ACKNOWLEDGE_MS = 3_000;
const registry = createRegistry();
let broker: OwnBroker;
let engine: TestClickHouse;
let push: Push;
let service: QueryService;
let ingest: RunningIngest;
let letKafkaIn: (kafka: KafkaClient) => void;
let host: string;

beforeAll(async () => {
  [broker, engine] = await Promise.all([startOwnBroker(), openTestEmbedded()]);
  await migrate(engine.clickhouse, logger);
  const kafka = new Promise<KafkaClient>((resolve) => {
    letKafkaIn = resolve;
  });
  push = startPush({
    kafka,
    settings: { ...readSettings({}), MAX_EVENT_BYTES: 8 * MiB, PUSH_BUFFER_BYTES: 64 * MiB },
    logger,
    registry,
    clock: systemClock,
    acknowledgeMs: ACKNOWLEDGE_MS,
  });
  service = await startService(engine.clickhouse, engine.env.DATA_DIR, {}, { routes: push.routes });
  await service.ready;
  host = new URL(service.address).host;
});
afterAll(async () => {
  await push?.stop();
  await ingest?.stop();
  await service?.stop();
  await engine?.close();
  await broker?.stop();
});

interface Sent {
  source?: string;
  path?: string;
  method?: string;
  key?: string;
  headers?: Record<string, string>;
}
const post = async (
  body: string | Buffer,
  {
    source = 'edge_logs',
    path = `/api/logs?source_name=${source}`,
    method = 'POST',
    key = API_KEY,
    headers = {},
  }: Sent = {},
): Promise<Reply> =>
  await send(service.address, path, {
    method,
    headers: { ...(key !== '' && { 'x-api-key': key }), ...headers },
    ...(method === 'POST' && { body }),
  });
const event = (id: string, project = 'p', more: object = {}): string =>
  JSON.stringify({ id, project, event_message: id, ...more });
const logged = { status: 200, text: '{"message":"Logged!"}' };

async function createKey(body: object): Promise<string> {
  const reply = await send(service.address, '/api/keys', {
    method: 'POST',
    headers: { 'x-api-key': API_KEY },
    body: JSON.stringify({ name: 'test', ...body }),
  });
  return (JSON.parse(reply.text) as { key: string }).key;
}

/** What is in a topic: key and value of each record. */
async function recordsOf(topic: string): Promise<{ key: string | null; value: string }[]> {
  return (await readAll(topic, { brokers: broker.brokers })).map(({ message }) => ({
    key: message.key?.toString() ?? null,
    value: String(message.value),
  }));
}
const idsOf = async (topic: string): Promise<string[]> =>
  (await recordsOf(topic)).map(({ value }) => String((JSON.parse(value) as { id?: unknown }).id));

/** Bytes over a socket of their own; the head of the answer and its body. */
function raw(bytes: Buffer): Promise<string> {
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(service.address);
    const socket = connect({ host: hostname, port: Number(port) }, () => socket.write(bytes));
    let answer = '';
    socket.on('data', (chunk: Buffer) => {
      answer += chunk.toString('utf8');
      if (bytes.subarray(0, 4).equals(Buffer.from('HEAD')) ? answer.includes('\r\n\r\n') : answer.includes('}'))
        socket.end();
    });
    socket.once('error', reject);
    socket.once('close', () => resolve(answer));
  });
}

describe('push', () => {
  it('answers 503 with retry-after while there is no Kafka yet', async () => {
    const reply = await post(event('early'));
    expect(reply.error).toMatchObject({ status: 503, code: 'unavailable' });
    expect(reply.headers['retry-after']).toBe('5');
    letKafkaIn(testKafka(broker.brokers));
    ingest = await startIngest({
      clickhouse: engine.clickhouse,
      kafka: testKafka(broker.brokers),
      settings: readSettings({}),
      logger,
      registry: createRegistry(),
    });
  });

  it('takes every form of body in every encoding, under every path and name; the events are in logs.all, byte for byte and once', async () => {
    const project = 'forms';
    const ids: string[] = [];
    const next = (): string => {
      ids.push(`form-${ids.length}`);
      return event(ids.at(-1)!, project);
    };
    const bodies = [
      () => `[${next()},${next()}]`,
      () => `{"batch":[${next()},${next()}]}`,
      () => `${next()}\n${next()}\n`,
      next,
    ];
    const encodings: [string, (body: string) => Buffer][] = [
      ['gzip', (b) => gzipSync(b)],
      ['deflate', (b) => deflateSync(b)],
      ['br', (b) => brotliCompressSync(b)],
      ['zstd', (b) => zstdCompressSync(b)],
    ];
    const replies = await Promise.all([
      ...bodies.map((body) => post(body())),
      ...encodings.flatMap(([encoding, compress]) =>
        bodies.map((body) => post(compress(body()), { headers: { 'content-encoding': encoding } })),
      ),
      ...[
        '/logs?source_name=edge_logs',
        '/api/events?collection_name=edge_logs',
        '/api/logs?source_name=cloudflare.logs.prod&collection_name=edge_logs',
      ].map((path) => post(next(), { path })),
      post(next(), { path: '/api/logs', headers: { 'x-collection': 'cloudflare.logs.prod' } }),
      post(next(), { path: `/api/logs?source_name=edge_logs&api_key=${API_KEY}`, key: '' }),
      // curl -d says the first of any body
      ...[
        'application/x-www-form-urlencoded',
        'json',
        '',
        'application/json, application/json',
        'application/json charset=utf-8',
      ].map((type) => post(next(), { headers: { 'content-type': type } })),
    ]);
    for (const reply of replies) expect(reply).toMatchObject(logged);
    const records = (await recordsOf('edge_logs')).filter(({ key }) => key === project);
    expect(records.map(({ value }) => (JSON.parse(value) as { id: string }).id).toSorted()).toEqual(ids.toSorted());
    await waitFor(
      async () => (await call(service, 'logs.all', { project })).rows.length === ids.length,
      20_000,
      'the events are in logs.all',
    );

    const verbatim = '{"project":"digits", "id":"d","metadata":{"n":12345678901234567890,"n":1},"timestamp":null}';
    expect(await post(` [ ${verbatim} ] `)).toMatchObject(logged);
    await waitFor(
      async () =>
        (await call(service, 'logs.all', { project: 'digits' })).text.includes('[{"n":12345678901234567890}]'),
      20_000,
      'digits are kept, of duplicate keys the first',
    );
    expect(await post('[]')).toMatchObject(logged);
  });

  it("takes the requests of Vector's http sinks as they are", async () => {
    expect(await raw(vectorHealthcheck(host))).toMatch(/^HTTP\/1\.1 200 /);
    for (const sink of vectorSinks(new Date().toISOString()))
      expect(await raw(vectorRequest(sink, host, API_KEY)), sink.name).toMatch(
        /^HTTP\/1\.1 200 [\s\S]*\{"message":"Logged!"\}$/,
      );
    await waitFor(
      async () => (await call(service, 'logs.all', { project: 'default' })).rows.length === 2,
      20_000,
      'both edge events of the gateway are in logs.all',
    );
    expect((await recordsOf('realtime_logs')).map(({ key }) => key)).toEqual(['default']);
    expect(await recordsOf('postgrest_logs')).toHaveLength(2);
  });

  it('10 MB are taken at once, with events of 5 MB; more is 413, however small it comes', async () => {
    const filler = 'x'.repeat(5_000_000 - 100);
    const body = `[${event('large-1', 'large', { filler })},${event('large-2', 'large', { filler: filler.slice(0, -1_000) })}]`;
    expect(await post(body)).toMatchObject(logged);
    const small = Array.from({ length: 10_000 }, (_, i) => event(`many-${i}`, `large-${i % 7}`)).join('\n');
    expect(await post(gzipSync(small), { headers: { 'content-encoding': 'gzip' } })).toMatchObject(logged);
    expect((await post(Buffer.alloc(11 * MiB, '['))).status).toBe(413);
    for (const [encoding, compress] of [
      ['gzip', gzipSync],
      ['br', brotliCompressSync],
      ['zstd', zstdCompressSync],
    ] as const) {
      const bomb = await post(compress(Buffer.alloc(11 * MiB, ' ')), { headers: { 'content-encoding': encoding } });
      expect(bomb.error).toMatchObject({ status: 413, code: 'payload_too_large' });
    }
    expect((await post(`[${'{},'.repeat(100_000)}{}]`)).error.status).toBe(413);
  });

  it('refuses: 400, 401, 403, 404, 405, 415', async () => {
    const status = async (sent: Sent, body: string | Buffer = event('refused')): Promise<number> =>
      (await post(body, sent)).status;
    expect(await status({ key: 'wrong' })).toBe(401);
    expect(await status({ key: '', path: '/logs?source_name=edge_logs' })).toBe(401);
    expect(await status({ key: await createKey({ scopes: ['query'] }) })).toBe(403);
    expect(await status({ source: 'no_such' })).toBe(404);
    expect(await status({ path: '/api/logs' })).toBe(400);
    expect(await status({ path: '/api/logs?source_name=edge_logs&collection_name=auth_logs' })).toBe(400);
    expect(await status({}, '')).toBe(400);
    expect(await status({}, '[{"project":"p"}')).toBe(400);
    expect(await status({ headers: { 'content-encoding': 'gzip' } }, 'plain')).toBe(400);
    expect(await status({ headers: { 'content-encoding': 'snappy' } })).toBe(415);
    for (const method of ['GET', 'PUT', 'DELETE', 'HEAD']) {
      const reply = await post('', { method });
      expect(reply.status).toBe(405);
      expect(reply.headers.allow).toBe('POST, OPTIONS');
    }
  });

  it('names every event that cannot be stored, and takes nothing of the request', async () => {
    const reply = await post(`[${event('half')},{"id":"x"},7,{"project":"p","timestamp":"soon"},${event('half')}]`);
    expect(reply.error).toMatchObject({
      status: 422,
      code: 'invalid_events',
      message: '3 of 5 events cannot be stored; nothing of the request was taken',
      errors: [
        { index: 1, message: 'has no project' },
        { index: 2, message: 'is not a JSON object' },
        { index: 3, message: 'has an invalid timestamp' },
      ],
    });
    expect((await post(event('half', 'p', { filler: 'x'.repeat(8 * MiB) }))).error).toMatchObject({
      status: 422,
      errors: [{ index: 0 }],
    });
    expect((await post('{"project":"p"}\n{"project":')).error.errors).toEqual([
      { index: 1, message: 'is not JSON at byte 11 of 11' },
    ]);
  });

  it('compresses a long list of mistakes', async () => {
    const events = `[${Array.from({ length: 200 }, () => '{}').join(',')}]`;
    const { status, headers, body } = await post(events, { headers: { 'accept-encoding': 'gzip' } });
    expect([status, headers['content-encoding']]).toEqual([422, 'gzip']);
    const { error } = JSON.parse(gunzipSync(body).toString()) as { error: { errors: unknown[] } };
    expect(error.errors.length).toBeGreaterThan(20);
  });

  it('a key that is limited to projects pushes for these only', async () => {
    const key = await createKey({ scopes: ['ingest'], projects: ['mine'] });
    await waitFor(async () => (await post(event('m', 'mine'), { key })).status === 200, 10_000, 'the key is known');
    const reply = await post(
      `[${event('m', 'mine')},${event('theirs', 'theirs')},{"project":"theirs","id":"theirs","project":"mine"}]`,
      { key },
    );
    expect(reply.error).toMatchObject({ status: 403, errors: [{ index: 1 }, { index: 2 }] });
    expect(
      await post('{"metadata":{"project":"mine"},"project":"other"}', { key, source: 'realtime.logs.prod' }),
    ).toMatchObject(logged);
  });

  it('429 with retry-after when a key holds as much as it may; what bodies hold is given back when their callers go', async () => {
    const { hostname, port } = new URL(service.address);
    const part = Buffer.alloc(9 * MiB, ' ');
    const open = await Promise.all(
      Array.from(
        { length: 3 },
        () =>
          new Promise<Socket>((resolve) => {
            const socket = connect({ host: hostname, port: Number(port) }, () => {
              socket.write(
                `POST /api/logs?source_name=edge_logs HTTP/1.1\r\nhost: ${host}\r\nx-api-key: ${API_KEY}\r\ncontent-length: ${10 * MiB}\r\n\r\n`,
              );
              socket.write(part, () => resolve(socket));
            });
            socket.on('error', () => undefined);
          }),
      ),
    );
    const body = Buffer.alloc(6 * MiB, ' ');
    const refused = await waitFor(
      async () => {
        const reply = await post(body);
        return reply.status === 429 ? reply : undefined;
      },
      10_000,
      'it is full',
    );
    expect(refused.error.code).toBe('rate_limited');
    expect(refused.headers['retry-after']).toBe('1');
    for (const socket of open) socket.destroy();
    await waitFor(async () => (await post(event('after'))).status === 200, 10_000, 'it is no longer full');
    await waitFor(async () => /^sluice_push_held_bytes 0$/m.test(await registry.metrics()), 10_000, 'nothing is held');
  });

  it('what was taken is in Kafka, and nothing of what was refused', async () => {
    const ids = new Set(await idsOf('edge_logs'));
    for (const id of ['large-1', 'large-2', 'many-0', 'many-9999', 'm', 'after']) expect(ids).toContain(id);
    for (const id of ['early', 'refused', 'half', 'x', 'theirs']) expect(ids).not.toContain(id);
  });

  it('is in /openapi.json, /docs and the metrics', async () => {
    const openapi = JSON.parse((await send(service.address, '/openapi.json')).text) as {
      paths: Record<string, object>;
    };
    expect(openapi.paths['/api/logs']).toHaveProperty('post.responses.422');
    expect((await send(service.address, '/docs')).text).toContain('<h2>POST /api/logs</h2>');
    const metrics = await registry.metrics();
    expect(metrics).toMatch(/^sluice_push_events_total\{source="auth_logs"\} 1$/m);
    expect(metrics).toMatch(/^sluice_push_requests_total\{source="edge_logs",status="422"\} 4$/m);
    expect(metrics).toMatch(/^sluice_push_requests_total\{source="unknown",status="404"\} 1$/m);
  });

  it('every refusal is counted once, as push, and none as a query', async () => {
    const metrics = await registry.metrics();
    // these two are refused before the body is read
    for (const status of [413, 429])
      expect(metrics).toMatch(
        new RegExp(`^sluice_push_requests_total\\{source="\\w+",status="${status}"\\} [1-9]`, 'm'),
      );
    const counted = [...metrics.matchAll(/^sluice_query_requests_total\{endpoint="other",status="(\d+)"/gm)].map(
      ([, status]) => status,
    );
    for (const status of ['413', '415', '422', '429', '500', '503']) expect(counted).not.toContain(status);
  });

  it('the broker is killed in the middle: whoever was told Logged! has the event in Kafka, the others 503; afterwards it goes on', async () => {
    await ingest.stop();
    const told: string[] = [];
    const statuses = new Set<number>();
    let stop = false;
    const pushing = Array.from({ length: 8 }, async (_, i) => {
      for (let n = 0; !stop; n++) {
        const id = `kill-${i}-${n}-${randomUUID()}`;
        const reply = await post(event(id, `p${i}`), { source: 'auth_logs' });
        statuses.add(reply.status);
        if (reply.status === 200) told.push(id);
        if (reply.status === 503) expect(reply.headers['retry-after']).toBe('5');
      }
    });
    await waitFor(() => told.length > 50, 20_000, 'events are acknowledged');
    await broker.kill();
    const before = told.length;
    await broker.restart();
    await waitFor(() => statuses.has(503), 20_000, 'callers are told that Kafka does not acknowledge');
    await waitFor(() => told.length > before + 50, 30_000, 'events are acknowledged again');
    stop = true;
    await Promise.all(pushing);
    expect(statuses).toEqual(new Set([200, 503]));
    const stored = new Set(await idsOf('auth_logs'));
    expect(told.filter((id) => !stored.has(id))).toEqual([]);
  });

  it('stopped, it refuses what comes and loses nothing that it acknowledged', async () => {
    await push.stop();
    expect((await post(event('late'))).error).toMatchObject({ status: 503, message: 'the service is stopping' });
  });
});
