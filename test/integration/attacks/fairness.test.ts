import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createKey } from '../../../services/query/keys/key-table.ts';
import type { QueryService } from '../../../services/query/service.ts';
import { temporaryFolder } from '../../harness/clickhouse.ts';
import { modes, openEngine, send, startService, writeEndpoint, type Engine } from '../query/service.ts';
import { whileAlive } from './alive.ts';

/**
 * One key that asks for all that there is, and another that asks for a little. The load waits in the engine: it is for
 * slots, not for cores.
 */
const CALLS = 40;
const folder = temporaryFolder();
let engine: Engine;
let service: QueryService;
const keys: Record<string, string> = {};
afterAll(() => folder.remove());

const ask = (name: string, endpoint: string, project: string): ReturnType<typeof send> =>
  send(service.address, `/api/endpoints/${endpoint}?project=${project}`, {
    headers: { 'x-api-key': keys[name] ?? '' },
  });

/** p95 of calls one after another, each of another project; milliseconds */
async function p95(prefix: string): Promise<number> {
  const times: number[] = [];
  for (let i = 0; i < CALLS; i++) {
    const from = performance.now();
    const reply = await ask('little', 'brief', `${prefix}${i}`);
    times.push(performance.now() - from);
    expect([reply.status, reply.status === 200 ? '' : reply.text]).toEqual([200, '']);
  }
  return times.toSorted((a, b) => a - b)[Math.floor(CALLS * 0.95) - 1] ?? Infinity;
}

describe.each(modes)('%s', (mode) => {
  beforeAll(async () => {
    engine = await openEngine(mode);
    writeEndpoint(folder.path, 'slow', 'SELECT sleep(1.5) + length(@project) AS n', 'max_seconds: 20\n');
    writeEndpoint(folder.path, 'brief', 'SELECT sleep(0.1) + length(@project) AS n', 'max_seconds: 20\n');
    service = await startService(engine.clickhouse, engine.dataDir, { ENDPOINTS_DIR: folder.path });
    await service.ready;
    for (const name of ['much', 'little'])
      keys[name] = (
        await createKey(engine.clickhouse, { name, scopes: ['query'], projects: [], expiresAt: undefined }, Date.now())
      ).key;
  });
  afterAll(async () => {
    await service?.stop();
    await engine?.close();
  });

  it('the p95 of the other is at most three times what it is alone', async () => {
    await whileAlive(service.address, async () => {
      const alone = await p95('alone');
      let ended = false;
      const refused: number[] = [];
      const load = Array.from({ length: 80 }, async (_, caller) => {
        for (let i = 0; !ended; i++) {
          const { status } = await ask('much', 'slow', `much${caller}x${i}`);
          refused.push(status);
          // more than there are slots and places in the queue, but no load of its own
          if (status !== 200) await new Promise((resolve) => setTimeout(resolve, 500));
        }
      });
      const loaded = await p95('loaded');
      ended = true;
      await Promise.all(load);
      // it did ask for more than there is
      expect(refused.filter((status) => status === 503).length).toBeGreaterThan(20);
      expect(loaded / alone).toBeLessThanOrEqual(3);
    });
  });
});
