import { connect, type Socket } from 'node:net';
import { systemClock } from '../../../common/clock.ts';
import { readSettings } from '../../../common/config/settings.ts';
import { createRegistry } from '../../../common/metrics.ts';
import { sources } from '../../../common/sources.ts';
import { startPush } from '../../../services/push/service.ts';
import { createTopic, testKafka, uniqueName } from '../../harness/kafka.ts';
import { waitFor } from '../../harness/wait-for.ts';
import { API_KEY, logger, openEngine, send, startService, type Reply, type TestSettings } from '../query/service.ts';

/**
 * A service with push, over a real broker, that attackers and others share. Its keys are in the embedded engine, in the
 * same process: push asks no engine for anything else.
 */
export interface PushWorld {
  readonly address: string;
  /** what push holds, bytes */
  heldBytes(): Promise<number>;
  createKey(body: object): Promise<string>;
  push(key: string, body: string | Buffer, headers?: Record<string, string>): Promise<Reply>;
  close(): Promise<void>;
}

export async function openPushWorld(settings: TestSettings = {}): Promise<PushWorld> {
  const engine = await openEngine();
  const prefix = uniqueName('attack');
  await createTopic('attack', { partitions: 3 }, `${prefix}.edge_logs`);
  const topics = sources.map(({ name }) => `${name}=${prefix}.${name}`).join(',');
  const registry = createRegistry();
  const push = startPush({
    kafka: Promise.resolve(testKafka()),
    settings: readSettings({ KAFKA_TOPICS: topics, ...settings }),
    logger,
    registry,
    clock: systemClock,
  });
  const service = await startService(engine.clickhouse, engine.dataDir, {}, { routes: push.routes });
  await service.ready;
  const { address } = service;
  return {
    address,
    heldBytes: async () => Number(/^sluice_push_held_bytes (\d+)$/m.exec(await registry.metrics())?.[1]),
    async createKey(body) {
      const reply = await send(address, '/api/keys', {
        method: 'POST',
        headers: { 'x-api-key': API_KEY },
        body: JSON.stringify({ name: 'test', scopes: ['ingest'], ...body }),
      });
      const { key } = JSON.parse(reply.text) as { key: string };
      await waitFor(
        async () =>
          (await send(address, '/api/logs', { method: 'POST', headers: { 'x-api-key': key }, body: '[]' })).status ===
          400,
        10_000,
        'the key is known',
      );
      return key;
    },
    push: async (key, body, headers = {}) =>
      await send(address, '/api/logs?source_name=edge_logs', {
        method: 'POST',
        headers: { 'x-api-key': key, ...headers },
        body,
      }),
    async close() {
      await push.stop();
      await service.stop();
      await engine.close();
    },
  };
}

export interface RawCall {
  readonly socket: Socket;
  /** what the service has sent so far */
  answer(): string;
  /** resolves when the service has closed its side entirely: nothing can be sent any more */
  readonly closed: Promise<void>;
}

/**
 * Sends the head of a push that announces a body, and so much of it. The socket stays open on our side whatever the
 * service does.
 */
export async function announce(
  address: string,
  key: string,
  announced: number | 'chunked',
  body: Buffer = Buffer.alloc(0),
): Promise<RawCall> {
  const { hostname, port, host } = new URL(address);
  const socket = connect({ host: hostname, port: Number(port), allowHalfOpen: true });
  let answer = '';
  socket.on('data', (chunk: Buffer) => {
    answer += chunk.toString('utf8');
  });
  const closed = new Promise<void>((resolve) => {
    socket.once('close', () => resolve());
    socket.on('error', () => undefined);
  });
  const length = announced === 'chunked' ? 'transfer-encoding: chunked' : `content-length: ${announced}`;
  await new Promise<void>((resolve) => {
    socket.once('connect', () => {
      socket.write(
        `POST /api/logs?source_name=edge_logs HTTP/1.1\r\nhost: ${host}\r\nx-api-key: ${key}\r\n${length}\r\n\r\n`,
      );
      socket.write(body, () => resolve());
    });
    socket.once('close', () => resolve());
  });
  return { socket, answer: () => answer, closed };
}
