import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Reader } from '../../../common/clickhouse/clickhouse.ts';
import { refusal } from '../../../common/clickhouse/errors.ts';
import { systemClock } from '../../../common/clock.ts';
import { createRegistry } from '../../../common/metrics.ts';
import { createAnswers } from '../../../services/query/answers.ts';
import { createApp } from '../../../services/query/app.ts';
import { BUILT_IN, readDefinitions } from '../../../services/query/definition.ts';
import { createKeyRing } from '../../../services/query/keys.ts';
import { createQueryMetrics } from '../../../services/query/metrics.ts';
import { createSlots } from '../../../services/query/slots.ts';
import { logger } from './service.ts';

/** Callers who begin and do not end: none of them gets as far as the engine. */
const clickhouse: Reader = { read: () => Promise.reject(refusal(210, 'there is none')) };
let app: Awaited<ReturnType<typeof createApp>>;
let port = 0;

beforeAll(async () => {
  const registry = createRegistry();
  const slots = createSlots({ concurrency: 1, queue: 0, waitMs: 1 });
  const metrics = createQueryMetrics(registry, { cacheEntries: () => 0, cacheBytes: () => 0, queriesRunning: slots.running, queriesWaiting: slots.waiting, requestsUnderWay: () => app.underWay() });
  const definitions = readDefinitions([BUILT_IN]);
  app = await createApp({
    definitions: () => definitions,
    answers: createAnswers({ clickhouse, slots, clock: systemClock, logger, metrics, limits: { timeoutSeconds: 1, maxMemoryBytes: 1, maxRowsToRead: 1, maxResultBytes: 1 }, cacheLimits: { maxEntries: 1, maxBytes: 1 } }),
    keys: createKeyRing([]), onKeyUsed: () => undefined, refreshKeys: () => Promise.resolve(), checks: {}, routes: [],
    clock: systemClock, logger, registry, metrics, ratePerKey: 0, ratePerAddress: 0, trustProxy: false, serveMetrics: false,
  });
  port = Number(new URL(await app.listen({ host: '127.0.0.1', port: 0 })).port);
});
afterAll(() => app?.close());

/** Everything that comes back until the other side ends the connection. */
const answerTo = (begun: string): Promise<string> => new Promise((resolve) => {
  const socket = connect(port, '127.0.0.1', () => socket.write(begun));
  let text = '';
  socket.on('data', (chunk) => { text += chunk.toString(); });
  // reset or ended: it is over
  socket.on('error', () => undefined);
  socket.on('close', () => resolve(text));
});

describe('a connection', () => {
  it('has a minute for a request, and two minutes without a byte', () => {
    const { headersTimeout, requestTimeout, timeout, keepAliveTimeout } = app.server;
    expect({ headersTimeout, requestTimeout, timeout, keepAliveTimeout }).toEqual({ headersTimeout: 60_000, requestTimeout: 60_000, timeout: 120_000, keepAliveTimeout: 75_000 });
  });

  it('whose request does not come to its end is told so and closed; one on which nothing comes is closed', async () => {
    Object.assign(app.server, { headersTimeout: 200, requestTimeout: 200 });
    const [head, body, nothing] = await Promise.all([
      answerTo('GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: '),
      answerTo('POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nx'),
      answerTo(''),
    ]);
    expect(head).toMatch(/^HTTP\/1\.1 400 Bad Request\r\n[^]*connection: close\r\n\r\n{"error":{"code":"invalid_request"/);
    expect(body).toMatch(/^HTTP\/1\.1 4/);
    expect(nothing).not.toMatch(/^HTTP\/1\.1 2/);
    expect((await fetch(`http://127.0.0.1:${port}/health`)).status).toBe(200);
  });

  it('that has been answered and stays silent is closed', async () => {
    app.server.keepAliveTimeout = 100;
    expect(await answerTo('GET /health HTTP/1.1\r\nHost: x\r\n\r\n')).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
  });
});
