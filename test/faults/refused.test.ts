import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { systemClock } from '../../common/clock.ts';
import { createDecoders } from '../../services/ingest/ingest.ts';
import { readDeadLetter, replayDeadLetter } from '../../services/ingest/dead-letters.ts';
import { reconcile } from '../../services/ingest/reconcile.ts';
import type { Fault } from '../harness/clickhouse-face.ts';
import { produce } from '../harness/kafka.ts';
import { openFace, type FaceEngine } from './face-engine.ts';
import { endIngestChildren, startIngestChild, waitForLog, type At, type IngestChild } from './ingest-child.ts';
import { createWorld, type World } from './ledger.ts';

// Guarantee: a message that the engine refuses for what it holds, although no rule of ours does, is a dead letter `rejected_by_store` with its bytes and
// the engine's words; the others of its batch are rows. Also when the process is killed at any step of it. No content is known that the engine refuses:
// here it is told to, for every statement that is given the message as an event.

const POISON = 'what the engine refuses';
/** not where it is given as a dead letter */
const refusal: Fault = { action: 'error', code: 131, body: `^(?!.*rejected_by_store).*${POISON}`, times: 1_000_000 };

describe('refused by the engine', () => {
  let engine: FaceEngine;
  let world: World;
  beforeAll(async () => { engine = await openFace(); });
  afterAll(() => engine.close());
  beforeEach(async () => {
    world = await createWorld();
    await engine.face.inject(refusal);
  });
  afterEach(endIngestChildren);

  const start = (at?: At): IngestChild => startIngestChild({ env: { ...world.env, ...engine.env }, sessionTimeoutMs: 2_000, at: at === undefined ? undefined : { match: 'edge_logs_landing', ...at } });

  async function producePoison(): Promise<{ topic: string; partition: number; offset: string }> {
    const value = JSON.stringify({ id: `${POISON} ${Math.random()}`, project: 'p', metadata: { request: { url: 'https://abcdefghijklmnopqrst.example/rest/v1/x', path: '/rest/v1/x' } } });
    const [report] = await produce([{ topic: world.topicOf('edge_logs'), partition: 0, value, timestamp: Date.now() }]);
    const offset = Number(report!.offset);
    world.acknowledged('edge_logs', 0, [offset], value, 'rejected_by_store');
    return { topic: world.topicOf('edge_logs'), partition: 0, offset: String(offset) };
  }

  test('a dead letter with its bytes and the engine\'s words; the rest is stored; replay stores it once the engine takes it', async () => {
    await world.produce({ edge_logs: 60 });
    const places = [await producePoison(), await producePoison()];
    await world.produce({ edge_logs: 60, function_edge_logs: 50 });
    const child = start();
    await world.finished(engine.clickhouse);
    await world.expectExact(engine.clickhouse);
    expect(await waitForLog(child, 'messages_refused', 1_000)).toMatchObject({ count: 2 });
    const letter = (await readDeadLetter(engine.clickhouse, places[0]!))!;
    expect(letter.detail).toContain('Code: 131. DB::Exception: injected');
    const replaying = { clickhouse: engine.clickhouse, decoders: createDecoders(world.settings, systemClock), retentionDays: 90, maxEventBytes: world.settings.MAX_EVENT_BYTES, clock: systemClock };
    expect(await replayDeadLetter(replaying, letter)).toBe('rejected_by_store');
    await engine.face.inject();
    expect(await replayDeadLetter(replaying, letter)).toBe('stored');
    const { ok, partitions } = await reconcile(engine.clickhouse, 90);
    expect([ok, partitions.find((p) => p.topic === places[0]!.topic && p.partition === 0)!.replayed]).toEqual([true, 1]);
    expect(await child.stop()).toMatchObject({ code: 0 });
  });

  test('killed in its dead letter and after it, before the rest', async () => {
    // a first attempt in the usual way, one in the exact way, the dead letters, the rest
    const kills: readonly At[] = [{ step: 'in_insert', times: 3, delayMs: 10 }, { step: 'after_insert', times: 1 }];
    for (const at of kills) {
      await world.produce({ edge_logs: 60, function_edge_logs: 20 });
      await producePoison();
      await world.produce({ edge_logs: 60 });
      expect(await start(at).exited, JSON.stringify(at)).toEqual({ code: null, signal: 'SIGKILL' });
    }
    const last = start();
    await world.finished(engine.clickhouse);
    await world.expectExact(engine.clickhouse);
    expect(await last.stop()).toMatchObject({ code: 0 });
  });
});
