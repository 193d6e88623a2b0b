import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { QueryService } from '../../../services/query/service.ts';
import { waitFor } from '../../harness/wait-for.ts';
import { API_KEY, call, modes, openEngine, send, startService, store, type Engine } from '../query/service.ts';
import { whileAlive } from './alive.ts';

/** Patterns of callers over urls of megabytes: bounded before they run, and within their limits while they do. */
const NOW = Date.UTC(2026, 2, 1, 9, 0, 0);
const URLS = 8;
const URL_BYTES = 2_000_000;
let engine: Engine;
let service: QueryService;

const counts = (project: string): ReturnType<typeof call> =>
  call(service, 'usage.api-counts', { project, interval: 'minutely' });
const running = async (): Promise<string | undefined> =>
  /^sluice_query_running (\d+)$/m.exec((await send(service.address, '/metrics')).text)?.[1];

describe.each(modes)('%s', (mode) => {
  beforeAll(async () => {
    engine = await openEngine(mode);
    const text = Array.from({ length: URL_BYTES }, (_, i) =>
      String.fromCharCode(97 + ((i * i * 7 + i * 13) % 26)),
    ).join('');
    for (let i = 0; i < URLS; i++)
      await store(
        engine.clickhouse,
        'edge_logs',
        [
          JSON.stringify({
            timestamp: (NOW - i * 1000) * 1000,
            project: 'p',
            metadata: { request: { url: text, path: '/rest' } },
          }),
        ],
        { now: NOW, first: i },
      );
    service = await startService(
      engine.clickhouse,
      engine.dataDir,
      { QUERY_TIMEOUT_SECONDS: '2', QUERY_CONCURRENCY: '2' },
      { clock: () => NOW },
    );
    await service.ready;
  });
  afterAll(async () => {
    await service?.stop();
    await engine?.close();
  });

  it('whose program is too large are a 400 at once, however they are written', async () => {
    const forms = [
      '.{1000}.{500}!',
      '(?:.{30}){30}!',
      '(?:(?:[a-z]{9}){9}){9}!',
      '.{0,1000}!',
      'a{201}',
      '[^a]{999}',
      '(?:a|bb|c){150}',
      '\\pL{200}',
      '(?i)[a-zé]{300}',
      `${'.{20}'.repeat(60)}!`,
      '(?:a?){500}(?:a){500}',
      `(${Array.from({ length: 100 }, (_, i) => `${'ab'[i % 2]}x${i}`).join('|')}){4}`,
    ];
    await whileAlive(service.address, async () => {
      for (const form of forms) {
        const reply = await counts(form);
        expect([
          form,
          reply.status,
          reply.status === 400 ? reply.error.errors?.map((e) => e.parameter) : reply.text,
        ]).toEqual([form, 400, ['project']]);
      }
    });
  });

  it('end about at their limit, with an error that names it', async () => {
    await whileAlive(service.address, async () => {
      for (const pattern of ['[a-z].{190}\u0001', '(?:a|b.{80}|c.{80})\u0001']) {
        const from = performance.now();
        const reply = await counts(pattern);
        expect([200, 504]).toContain(reply.status);
        if (reply.status === 504) expect(reply.error.message).toBe('the query exceeded its limit of time');
        // the limit, and a row of two megabytes for each of two threads
        expect(performance.now() - from).toBeLessThan(15_000);
      }
    });
  });

  it('whose caller has left give their slot to the next', async () => {
    await whileAlive(service.address, async () => {
      const caller = new AbortController();
      const left = ['x', 'y', 'z'].map((letter) =>
        send(
          service.address,
          `/api/endpoints/usage.api-counts?${new URLSearchParams({ project: `[a-z].{190}\u0001${letter}`, interval: 'daily' }).toString()}`,
          { headers: { 'x-api-key': API_KEY }, signal: caller.signal },
        ).catch(() => 'left'),
      );
      await waitFor(async () => (await running()) !== '0', 5_000, 'one runs');
      caller.abort();
      expect(await Promise.all(left)).toEqual(['left', 'left', 'left']);
      await waitFor(async () => (await running()) === '0', 5_000, 'its slot is free');
      expect((await counts('abcdefghijklmnopqrst')).status).toBe(200);
    });
  });
});
