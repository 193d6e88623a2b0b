import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { temporaryFolder } from '../harness/clickhouse.ts';
import { startOwnBroker, withAdmin, type OwnBroker } from '../harness/kafka.ts';
import { waitFor } from '../harness/wait-for.ts';
import { endIngestChildren, startIngestChild, type At } from './ingest-child.ts';
import { createWorld } from './ledger.ts';

// Guarantee: kill -9 of the broker and its absence neither end the process nor lose nor double a message that it had
// acknowledged.

let broker: OwnBroker;
beforeAll(async () => {
  broker = await startOwnBroker();
});
afterAll(() => broker.stop());
afterEach(endIngestChildren);

/** In the kill, a batch is held there: its insert strikes while the broker is away, then its announcement does. */
const kills: readonly { readonly absentMs: number; readonly at: At }[] = [
  { absentMs: 0, at: { step: 'before_insert', match: '^edge_logs\\b', holds: true } },
  { absentMs: 25_000, at: { step: 'before_intent', match: '^edge_logs\\.', holds: true } },
];

test('the broker is killed while a batch is in flight, stays away for a while, and comes back', async () => {
  const { brokers } = broker;
  const folder = temporaryFolder();
  try {
    const world = await createWorld({ brokers });
    const sources = ['edge_logs', 'function_edge_logs'] as const;
    for (const { absentMs, at } of kills) {
      const child = startIngestChild({ env: { ...world.env, DATA_DIR: folder.path }, sessionTimeoutMs: 6_000, at });
      await child.running;
      await world.produce({ edge_logs: 1_000, function_edge_logs: 200 });
      await child.atStep;
      await broker.kill();
      const behind = await world.behind(child.reader);
      expect(
        behind.some((place) => place.startsWith('edge_logs.')),
        String(behind),
      ).toBe(true);
      child.release();
      await sleep(absentMs);
      expect(child.hasEnded(), child.log().slice(-3_000)).toBe(false);
      await broker.restart();
      await waitFor(
        () => withAdmin((admin) => admin.fetchTopicOffsets(world.topicOf('function_edge_logs')), brokers),
        30_000,
        'the topics are there again',
      );
      await world.produce({ edge_logs: 500, function_edge_logs: 100 });
      await world.finished(child.reader, 45_000);
      for (const source of sources) await world.sentAgain(source);
      await world.finished(child.reader);
      await world.expectExact(child.reader);
      expect(await child.stop()).toMatchObject({ code: 0 });
    }
  } finally {
    folder.remove();
  }
});
