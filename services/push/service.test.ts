import { expect, test } from 'vitest';
import { readSettings } from '../../common/config/settings.ts';
import type { RouteRequest } from '../../common/http/route.ts';
import type { KafkaClient, ProducerRecord } from '../../common/kafka/client.ts';
import { createLogger } from '../../common/logger.ts';
import { createRegistry } from '../../common/metrics.ts';
import { startPush } from './service.ts';

const MiB = 1024 * 1024;
const ALL = { id: 'k', name: 'k', scopes: ['ingest'], projects: [] };

/** Push to a Kafka that answers each call when it is told to. A caller waits for 20 ms. */
async function start(env: Readonly<Record<string, string>> = {}) {
  const calls: (() => void)[] = [];
  const send = async ({ topic, messages }: ProducerRecord) => {
    for (const message of messages) message.partition = 0;
    await new Promise<void>((resolve) => calls.push(resolve));
    return [{ topicName: topic, partition: 0, errorCode: 0 }];
  };
  const producer = { connect: async () => {}, disconnect: async () => {}, send };
  const registry = createRegistry();
  const { routes } = startPush({
    kafka: Promise.resolve({ producer: () => producer } as unknown as KafkaClient),
    settings: readSettings(env),
    logger: createLogger('silent'),
    registry,
    clock: () => 0,
    acknowledgeMs: 20,
  });
  await Promise.resolve();
  const held = async (): Promise<number> =>
    (await registry.getSingleMetric('sluice_push_held_bytes')!.get()).values[0]!.value;
  const push = (body: string, more: Partial<RouteRequest> = {}) =>
    routes[0]!.handle({
      params: {},
      query: new URLSearchParams('source_name=auth_logs'),
      headers: {},
      body: Buffer.from(body),
      key: ALL,
      address: '',
      arrivedAt: '127.0.0.1:4000',
      signal: new AbortController().signal,
      ...more,
    });
  return { push, held, calls, admit: (bytes: number) => routes[0]!.admit!(bytes, ALL) };
}

const EVENT = '{"project":"p"}';

test('events count as held until Kafka has them, also after their caller was told to send them again', async () => {
  const { push, held, calls } = await start();
  await expect(push(EVENT)).rejects.toMatchObject({ code: 'unavailable' });
  expect(await held()).toBeGreaterThan(EVENT.length);
  calls[0]!();
  await expect.poll(held).toBe(0);
});

test('nothing is held of a request that is refused, whatever refuses it', async () => {
  const { push, held, calls } = await start();
  for (const [body, more, code] of [
    ['{"project":"p"', {}, 'invalid_events'],
    ['', {}, 'invalid_request'],
    [EVENT, { key: { ...ALL, projects: ['q'] } }, 'forbidden'],
    [EVENT, { headers: { 'content-encoding': 'gzip' } }, 'invalid_request'],
    [EVENT, { signal: AbortSignal.abort() }, 'invalid_request'],
    [`[${`${EVENT},`.repeat(100_000)}${EVENT}]`, {}, 'payload_too_large'],
  ] as const)
    await expect(push(body, more)).rejects.toMatchObject({ code });
  expect([await held(), calls.length]).toEqual([0, 0]);
});

test('a body in pieces of a byte fills the share of its key, because each piece takes memory of its own', async () => {
  const { admit, held } = await start();
  const releases: (() => void)[] = [];
  expect(() => {
    for (let i = 0; i < 10 * MiB; i++) releases.push(admit(1));
  }).toThrow('the push buffer is full');
  expect(releases.length).toBeLessThan(150_000);
  for (const release of releases) release();
  expect(await held()).toBe(0);
});

test('one request at the limits fits into the share of a key, in the smallest buffer and in packets of the smallest size', async () => {
  const smallest = 96 * MiB;
  expect(() => readSettings({ PUSH_BUFFER_BYTES: String(smallest - 1) })).toThrow('PUSH_BUFFER_BYTES');
  const { push, held, admit } = await start({ PUSH_BUFFER_BYTES: String(smallest) });
  const events = `${EVENT}\n`.repeat(100_000).padEnd(10 * MiB);
  // in Ethernet's packets, of 1,428 bytes with IPv6
  for (let left = events.length; left > 0; left -= 1_428) admit(Math.min(left, 1_428));
  const received = await held();
  await expect(push(events)).rejects.toMatchObject({ code: 'unavailable' });
  expect((await held()) - received).toBe(10 * MiB + 100_000 * 256);
});

test('a source whose topic holds raw Avro takes no JSON, which ingest would make a dead letter', async () => {
  const { push, calls } = await start({ KAFKA_RAW_AVRO_TOPICS: 'auth_logs' });
  await expect(push(EVENT)).rejects.toMatchObject({ code: 'conflict' });
  expect(calls).toEqual([]);
});

test('a name of no source is not found, although another name of the request is one', async () => {
  const { push } = await start();
  const named = (query: string) => push(EVENT, { query: new URLSearchParams(query) });
  await expect(named('source_name=auth_logs&collection_name=nothing')).rejects.toMatchObject({ code: 'not_found' });
  await expect(named('source_name=auth_logs&collection_name=edge_logs')).rejects.toMatchObject({
    code: 'invalid_parameter',
  });
});
