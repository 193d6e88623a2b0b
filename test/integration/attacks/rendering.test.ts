import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { nestedList } from '../../../common/json-text.ts';
import type { QueryService } from '../../../services/query/service.ts';
import { API_KEY, call, openEngine, send, startService, store, type Engine } from '../query/service.ts';
import { whileAlive } from './alive.ts';

/**
 * Events that cost more to show than their bytes say. They are shown after the engine has answered, so one engine will
 * do: large-answers.test.ts reads large answers of both.
 */
const NOW = Date.UTC(2026, 2, 1, 9, 0, 0);
const LARGEST = 7_500_000;
const shapes: Readonly<Record<string, string>> = {
  'empty objects': `[${'{},'.repeat(LARGEST / 3)}{}]`,
  'nested lists': `[${`${'['.repeat(400)}${']'.repeat(400)},`.repeat(Math.floor(LARGEST / 801))}1]`,
  'nested objects': `{${Array.from({ length: Math.floor(LARGEST / 1_210) }, (_, i) => `"${i}":${'{"a":'.repeat(200)}1${'}'.repeat(200)}`).join(',')}}`,
  'many keys': `{${Array.from({ length: Math.floor(LARGEST / 14) }, (_, i) => `"k${i}":{}`).join(',')}}`,
  'the same key': `{${'"a":{},'.repeat(LARGEST / 7)}"a":1}`,
  'escaped keys': `{${Array.from({ length: Math.floor(LARGEST / 22) }, (_, i) => `"\\u0061\\"${i}":[]`).join(',')}}`,
  'backslashes in one text': JSON.stringify('\\'.repeat(LARGEST / 2)),
};
let engine: Engine;
let service: QueryService;

describe('an answer', () => {
  beforeAll(async () => {
    engine = await openEngine();
    for (const [i, [name, metadata]] of Object.entries(shapes).entries()) {
      const text = `{"id":"x","timestamp":${NOW * 1000},"project":${JSON.stringify(name)},"metadata":${metadata}}`;
      await store(engine.clickhouse, 'edge_logs', [text], { now: NOW, first: i });
    }
    service = await startService(engine.clickhouse, engine.dataDir, {}, { clock: () => NOW });
    await service.ready;
    // the thread that makes large answers starts with the first of them
    await call(service, 'logs.all', { project: 'the same key' });
  });
  afterAll(async () => {
    await service?.stop();
    await engine?.close();
  });

  it.each(Object.keys(shapes))('an event of %s is shown, while others are answered', async (name) => {
    const reply = await whileAlive(service.address, () => call(service, 'logs.all', { project: name }));
    expect([reply.status, reply.status === 200 ? '' : reply.text]).toEqual([200, '']);
    const expected = nestedList(shapes[name]);
    expect(reply.text.length).toBe(
      `{"result":[{"id":"x","timestamp":${NOW * 1000},"event_message":"","metadata":${expected}}]}`.length,
    );
    expect(reply.text.endsWith(`"metadata":${expected}}]}`)).toBe(true);
  });

  it('as lines and with compression too', async () => {
    await whileAlive(service.address, async () => {
      for (const headers of [
        { accept: 'application/x-ndjson' },
        { 'accept-encoding': 'gzip' },
        { 'accept-encoding': 'br' },
      ]) {
        const reply = await send(service.address, '/api/endpoints/logs.all?project=empty+objects', {
          headers: { 'x-api-key': API_KEY, ...headers },
        });
        expect(reply.status).toBe(200);
      }
    });
  });
});
