import { afterEach, describe, expect, test } from 'vitest';
import { temporaryFolder } from '../harness/clickhouse.ts';
import { testKafka } from '../harness/kafka.ts';
import { endIngestChildren, startIngestChild, steps, waitForLog, type At, type IngestChild } from './ingest-child.ts';
import { createWorld, type World } from './ledger.ts';

// Guarantee: SIGTERM at any moment ends the process with code 0 within 10 s, with nothing lost and nothing doubled; a
// client that cannot go on ends the process with another code, and leaves everything for the next one.

afterEach(endIngestChildren);

function start(world: World, dataDir: string, at?: At, env: Record<string, string> = {}): IngestChild {
  return startIngestChild({
    env: { ...world.env, ...env, DATA_DIR: dataDir },
    sessionTimeoutMs: 3_000,
    at: at === undefined ? undefined : { match: '^(edge_logs|batches)\\b', ...at },
  });
}

describe('shutdown', () => {
  test('SIGTERM at every step of a batch', { timeout: 180_000 }, async () => {
    const folder = temporaryFolder();
    try {
      const world = await createWorld({ partitions: 1 });
      for (const step of steps) {
        await world.produce({ edge_logs: 400, function_edge_logs: 100, postgres_logs: 50 });
        const child = start(world, folder.path, { step, signal: 'SIGTERM' });
        await child.atStep;
        const since = performance.now();
        expect(await child.exited, `${step}: ${child.log().slice(-1_000)}`).toEqual({ code: 0, signal: null });
        expect(performance.now() - since, step).toBeLessThan(10_000);
      }
      const last = start(world, folder.path);
      await world.finished(last.reader);
      await world.expectExact(last.reader);
      expect(await last.stop()).toMatchObject({ code: 0 });
    } finally {
      folder.remove();
    }
  });

  test('SIGTERM while the process starts', async () => {
    const folder = temporaryFolder();
    try {
      const world = await createWorld();
      await world.produce({ edge_logs: 100 });
      for (const event of ['clickhouse_embedded_opened', 'schema_ready', 'group_joined']) {
        const child = start(world, folder.path);
        await waitForLog(child, event, 30_000);
        const { code, tookMs } = await child.stop();
        expect(code, `${event}: ${child.log().slice(-1_000)}`).toBe(0);
        expect(tookMs, event).toBeLessThan(10_000);
      }
      const last = start(world, folder.path);
      await world.finished(last.reader);
      await world.expectExact(last.reader);
      expect(await last.stop()).toMatchObject({ code: 0 });
    } finally {
      folder.remove();
    }
  });

  test('a client that cannot go on ends the process with a code of its own; with the cause gone the next one goes on', async () => {
    const folder = temporaryFolder();
    const stranger = testKafka();
    try {
      const world = await createWorld();
      await world.produce({ edge_logs: 300 });
      // a member that speaks another protocol: Kafka refuses whoever joins beside it, for good
      const other = stranger.consumer({
        groupId: world.groupId,
        partitionAssigners: [
          () => ({
            name: 'other',
            version: 0,
            assign: () => Promise.resolve([]),
            protocol: () => ({ name: 'other', metadata: Buffer.alloc(0) }),
          }),
        ],
      });
      await other.connect();
      await other.subscribe({ topics: [world.topicOf('edge_logs')] });
      await other.run({ eachMessage: () => Promise.resolve() });
      const crashed = start(world, folder.path);
      expect(await crashed.exited, crashed.log().slice(-1_000)).toEqual({ code: 1, signal: null });
      await waitForLog(crashed, 'consumer_crashed', 1_000);
      await other.disconnect();
      const last = start(world, folder.path);
      await world.finished(last.reader);
      await world.expectExact(last.reader);
      expect(await last.stop()).toMatchObject({ code: 0 });
    } finally {
      folder.remove();
    }
  });
});
