import { randomBytes } from 'node:crypto';
import { Agent, request } from 'node:http';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Reader } from '../../../common/clickhouse/clickhouse.ts';
import { systemClock } from '../../../common/clock.ts';
import { createRegistry } from '../../../common/metrics.ts';
import { createAnswers } from '../../../services/query/answer/answers.ts';
import { createApp } from '../../../services/query/http/app.ts';
import { BUILT_IN, readDefinitions } from '../../../services/query/definition/definition-files.ts';
import { createKeyRing, hashKey, type Key } from '../../../services/query/keys/key-ring.ts';
import { createQueryMetrics } from '../../../services/query/metrics.ts';
import { createResponseMemory } from '../../../services/query/answer/response-memory.ts';
import { createShares } from '../../../services/query/answer/shares.ts';
import { createQuerySlots } from '../../../services/query/answer/query-slots.ts';
import { waitFor } from '../../harness/wait-for.ts';
import { logger } from './service.ts';

/** Callers who begin and do not end, or do not read what they asked for. */
const KEY = 'the-key';
const OTHER_KEY = 'the-other-key';
const ANSWER_BYTES = 20 * 1024 * 1024;
const result = Buffer.from(
  `{"meta":[{"name":"id","type":"String"},{"name":"timestamp","type":"DateTime64(6, 'UTC')"},{"name":"message","type":"String"}],"data":[["a","2026-03-01 09:00:00.000000",${JSON.stringify(JSON.stringify({ event_message: randomBytes((ANSWER_BYTES / 4) * 3).toString('base64') }))}]]}`,
);
// a copy each time: what makes the body takes the result's memory
let reads = 0;
/** how long a query takes */
let queryMs = 0;
const clickhouse: Reader = {
  read: async () => {
    reads++;
    await sleep(queryMs);
    return { body: Buffer.from(result), readRows: 1, readBytes: 1 };
  },
};
const keyOf = (id: string, text: string): Key => ({
  id,
  name: id,
  hash: hashKey(text),
  scopes: ['query'],
  projects: [],
});
const keys = createKeyRing(keyOf('k', KEY));
keys.load([keyOf('o', OTHER_KEY)], Date.now());
const shares = createShares();
let responseMemory = createResponseMemory(createShares(), 2.5 * ANSWER_BYTES);
let app: Awaited<ReturnType<typeof createApp>>;
let port = 0;
/** what happens while the list of keys is read for a caller with an unknown key */
let refresh = (): Promise<void> => Promise.resolve();
/** what happens when an answer has been compressed, before it is sent */
let encoded = (): Promise<void> => Promise.resolve();
/** a route that works for a second, without a byte on the connection */
const work = async (): Promise<{ status: number }> => {
  await sleep(1_000);
  return { status: 200 };
};

beforeAll(async () => {
  const registry = createRegistry();
  const slots = createQuerySlots({ shares, concurrency: 1, queue: 0, waitMs: 1 });
  const metrics = createQueryMetrics(registry, {
    cacheEntries: () => 0,
    cacheBytes: () => 0,
    queriesRunning: slots.running,
    queriesWaiting: slots.waiting,
    requestsInFlight: () => app.inFlight(),
    responseMemoryBytes: () => responseMemory.used(),
  });
  const definitions = readDefinitions([BUILT_IN]);
  const answers = createAnswers({
    clickhouse,
    slots,
    responseMemory,
    shares,
    clock: systemClock,
    logger,
    metrics,
    limits: { max_execution_time: 1, max_memory_usage: 1, max_rows_to_read: 1, max_result_bytes: 2 * ANSWER_BYTES },
    cacheLimits: { maxEntries: 1, maxBytes: 1 },
    isServed: () => true,
  });
  app = await createApp({
    definitions: () => definitions,
    answers: {
      ...answers,
      encoded: async (answer, as, owner) => {
        const body = await answers.encoded(answer, as, owner);
        await encoded();
        return body;
      },
    },
    responseMemory: {
      take: (bytes, owner) => responseMemory.take(bytes, owner),
      reserve: (signal, owner) => responseMemory.reserve(signal, owner),
      hold: (reply, bytes, owner) => responseMemory.hold(reply, bytes, owner),
      used: () => responseMemory.used(),
    },
    keys,
    loader: { noteUse: () => undefined, refresh: () => refresh() },
    checks: {},
    routes: [
      { method: 'POST', path: '/upload', scope: 'any', bodyLimit: 1000, handle: async () => ({ status: 200 }) },
      { method: 'POST', path: '/work', scope: 'any', bodyLimit: 1, handle: work },
      { method: 'POST', path: '/long-work', scope: 'any', bodyLimit: 1, timeoutMs: 10_000, handle: work },
    ],
    clock: systemClock,
    logger,
    registry,
    metrics,
    ratePerKey: 0,
    ratePerAddress: 0,
    trustProxy: false,
    serveMetrics: false,
  });
  port = Number(new URL(await app.listen({ host: '127.0.0.1', port: 0 })).port);
});
afterAll(() => app?.close());

/** Everything that comes back until the other side ends the connection. */
const answerTo = (begun: string): Promise<string> =>
  new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => socket.write(begun));
    let text = '';
    socket.on('data', (chunk) => {
      text += chunk.toString();
    });
    // reset or ended: it is over
    socket.on('error', () => undefined);
    socket.on('close', () => resolve(text));
  });

const LOGS = '/api/endpoints/logs.all?project=p';
/** Asks, and reads no further than the first piece. */
const askAndWait = (): Promise<Socket> =>
  new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1', () =>
      socket.write(`GET ${LOGS} HTTP/1.1\r\nHost: x\r\nX-API-KEY: ${KEY}\r\n\r\n`),
    );
    socket.on('error', () => undefined);
    socket.once('close', () => reject(new Error('closed before the answer')));
    socket.once('data', () => resolve(socket.pause()));
  });

describe('a connection', () => {
  it('has a minute for a request, and two minutes without a byte', () => {
    const { headersTimeout, requestTimeout, timeout, keepAliveTimeout } = app.server;
    expect({ headersTimeout, requestTimeout, timeout, keepAliveTimeout }).toEqual({
      headersTimeout: 60_000,
      requestTimeout: 60_000,
      timeout: 120_000,
      keepAliveTimeout: 75_000,
    });
  });

  it('stays open while a route with a longer time works, and is closed without it, also afterwards', async () => {
    const { timeout } = app.server;
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const post = (path: string): Promise<number | string | undefined> =>
      new Promise((resolve) => {
        request({ port, path, method: 'POST', agent, headers: { 'x-api-key': KEY } }, (response) =>
          response.resume().on('end', () => resolve(response.statusCode)),
        )
          .on('error', (error: NodeJS.ErrnoException) => resolve(error.code))
          .end();
      });
    try {
      app.server.timeout = 300;
      expect(await post('/long-work')).toBe(200);
      expect(await post('/work')).toBe('ECONNRESET');
    } finally {
      app.server.timeout = timeout;
      agent.destroy();
    }
  });

  it('stays open while an endpoint makes its answer, and is closed when nobody reads that', async () => {
    const { timeout } = app.server;
    try {
      app.server.timeout = 300;
      queryMs = 1_000;
      await askAndWait();
      expect(app.inFlight()).toBe(1);
      await waitFor(() => app.inFlight() === 0, 5_000, 'it is closed');
    } finally {
      app.server.timeout = timeout;
      queryMs = 0;
    }
  });

  it('whose request does not come to its end is told so and closed; one on which nothing comes is closed', async () => {
    Object.assign(app.server, { headersTimeout: 200, requestTimeout: 200 });
    const [head, body, nothing] = await Promise.all([
      answerTo('GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: '),
      answerTo(`POST /upload HTTP/1.1\r\nHost: x\r\nX-API-KEY: ${KEY}\r\nContent-Length: 100\r\n\r\nx`),
      answerTo(''),
    ]);
    // not 400: a producer whose network was slow sends its events again
    for (const answer of [head, body])
      expect(answer).toMatch(
        /^HTTP\/1\.1 408 Request Timeout\r\n[^]*connection: close\r\n\r\n{"error":{"code":"request_timeout"/,
      );
    expect(nothing).not.toMatch(/^HTTP\/1\.1 2/);
    expect((await fetch(`http://127.0.0.1:${port}/health`)).status).toBe(200);
  });

  it('that has been answered and stays silent is closed', async () => {
    app.server.keepAliveTimeout = 100;
    expect(await answerTo('GET /health HTTP/1.1\r\nHost: x\r\n\r\n')).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
  });
});

describe('large answers that nobody reads', () => {
  const ask = async (key = KEY): Promise<[number, string]> => {
    const reply = await fetch(`http://127.0.0.1:${port}${LOGS}`, {
      headers: { 'x-api-key': key, 'accept-encoding': 'identity' },
    });
    return [reply.status, await reply.text()];
  };
  it('are held up to a bound, then the next is told to come back, until one of them is read or its caller has left', async () => {
    const [first, second] = [await askAndWait(), await askAndWait()];
    expect(responseMemory.used()).toBeGreaterThan(2 * ANSWER_BYTES);
    expect(await ask()).toEqual([503, expect.stringContaining('"code":"unavailable"')]);
    first.destroy();
    await waitFor(() => responseMemory.used() < 1.5 * ANSWER_BYTES, 5_000, 'the one that left is forgotten');
    const [status, text] = await ask();
    expect([status, text.length > ANSWER_BYTES]).toEqual([200, true]);
    second.resume();
    await waitFor(() => responseMemory.used() === 0, 5_000, 'what is read is forgotten');
    second.destroy();
  });

  it('are sent where one alone is larger than the bound; HEAD holds nothing', async () => {
    responseMemory = createResponseMemory(createShares(), ANSWER_BYTES / 2);
    expect((await ask())[0]).toBe(200);
    const one = await askAndWait();
    expect((await ask())[0]).toBe(503);
    expect(
      (await fetch(`http://127.0.0.1:${port}${LOGS}`, { method: 'HEAD', headers: { 'x-api-key': KEY } })).status,
    ).toBe(200);
    one.destroy();
    await waitFor(() => responseMemory.used() === 0, 5_000, 'nothing is held');
  });

  it('of one key take half of the room at most while another key asks', async () => {
    responseMemory = createResponseMemory(shares, 5 * ANSWER_BYTES);
    expect((await ask(OTHER_KEY))[0]).toBe(200);
    const held = [await askAndWait(), await askAndWait()];
    expect(responseMemory.used()).toBeGreaterThan(2 * ANSWER_BYTES);
    expect((await ask())[0]).toBe(503);
    expect((await ask(OTHER_KEY))[0]).toBe(200);
    for (const socket of held) socket.destroy();
    await waitFor(() => responseMemory.used() === 0, 5_000, 'nothing is held');
  });

  it('have to be read in time', async () => {
    responseMemory = createResponseMemory(createShares(), undefined, 500);
    const closed = Promise.withResolvers<number>();
    const socket = await askAndWait();
    let read = 0;
    socket.on('data', (chunk) => {
      read += chunk.length;
    });
    socket.once('close', () => closed.resolve(read));
    await waitFor(() => app.inFlight() === 0, 5_000, 'it is sent away');
    expect(responseMemory.used()).toBe(0);
    socket.resume();
    expect(await closed.promise).toBeLessThan(ANSWER_BYTES);
  });

  it('a caller who leaves while its answer is compressed holds nothing', async () => {
    const socket = connect(port, '127.0.0.1', () =>
      socket.write(`GET ${LOGS} HTTP/1.1\r\nHost: x\r\nX-API-KEY: ${KEY}\r\nAccept-Encoding: br\r\n\r\n`),
    );
    const left = Promise.withResolvers<void>();
    encoded = async () => {
      socket.destroy();
      await waitFor(() => app.inFlight() === 0, 5_000, 'the service has noticed');
      left.resolve();
    };
    await left.promise;
    encoded = () => Promise.resolve();
    expect((await ask())[0]).toBe(200);
    expect(responseMemory.used()).toBe(0);
  });
});

it('a caller who leaves before its key is known costs no query', async () => {
  const before = reads;
  refresh = async () => {
    socket.destroy();
    await waitFor(() => app.inFlight() === 0, 5_000, 'the service has noticed');
    keys.load([keyOf('n', 'a new key')], Date.now());
    setImmediate(authenticated.resolve);
  };
  const authenticated = Promise.withResolvers<void>();
  const socket = connect(port, '127.0.0.1', () =>
    socket.write('GET /api/endpoints/logs.all?project=p HTTP/1.1\r\nHost: x\r\nX-API-KEY: a new key\r\n\r\n'),
  );
  await authenticated.promise;
  expect(reads).toBe(before);
});
