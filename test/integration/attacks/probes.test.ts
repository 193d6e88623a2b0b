import { afterAll, beforeAll, expect, it } from 'vitest';
import type { QueryService } from '../../../services/query/service.ts';
import { rollupNote } from '../../../services/rollup/readiness.ts';
import { call, openEngine, send, startService, type Engine } from '../query/service.ts';

/** Callers without a key: their probes ask the engine, which answers have to share with them. */
let engine: Engine;
let service: QueryService;

beforeAll(async () => {
  engine = await openEngine();
  // as npm start checks it
  const rollups = (): ReturnType<typeof rollupNote> => rollupNote(engine.clickhouse);
  service = await startService(engine.clickhouse, engine.dataDir, {}, { checks: { rollups } });
});
afterAll(async () => {
  await service?.stop();
  await engine?.close();
});

it('200 probes at a time take no reader away from endpoints', async () => {
  const probes = new Set<number>();
  let ended = false;
  const load = Array.from({ length: 200 }, async () => {
    while (!ended) probes.add((await send(service.address, '/readyz')).status);
  });
  const answers: number[] = [];
  for (let i = 0; i < 20; i++) answers.push((await call(service, 'logs.all', { project: `p${i}` })).status);
  ended = true;
  await Promise.all(load);
  expect([new Set(answers), probes]).toEqual([new Set([200]), new Set([200])]);
});
