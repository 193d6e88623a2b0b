import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { select } from '../../common/clickhouse/clickhouse.ts';
import { readCommit, type Place } from '../../common/kafka/partition.ts';
import { decodeIntent, type Intent } from '../../services/ingest/delivery/intent.ts';
import { temporaryFolder } from '../harness/clickhouse.ts';
import { withAdmin } from '../harness/kafka.ts';
import { waitFor } from '../harness/wait-for.ts';
import { openFace, type FaceEngine } from './face-engine.ts';
import { endIngestChildren, logged, startIngestChild, type At, type IngestChild } from './ingest-child.ts';
import { createWorld, type World } from './ledger.ts';

// Guarantee: however partitions move between processes, and whatever a former owner still does, every message is once
// in its table and in every rollup. A former owner may finish an insert that it began, or begin one that it announced,
// at any later moment: the token makes it count once. Its late commit may hide the new owner's: the ledger decides
// where the next one goes on.

const SESSION_TIMEOUT_MS = 3_000;
const EDGE = '^edge_logs\\b';

describe('rebalance', () => {
  let engine: FaceEngine;
  let world: World;
  beforeAll(async () => {
    engine = await openFace();
  });
  afterAll(() => engine.close());
  beforeEach(async () => {
    world = await createWorld();
  });
  afterEach(async () => {
    await endIngestChildren();
    await engine.face.inject();
  });

  const start = (at?: At, sessionTimeoutMs = SESSION_TIMEOUT_MS, logLevel = 'info'): IngestChild =>
    startIngestChild({
      logLevel,
      env: { ...world.env, ...engine.env },
      sessionTimeoutMs,
      at: at === undefined ? undefined : { match: EDGE, ...at },
    });

  async function expectExactAndStop(...children: IngestChild[]): Promise<void> {
    await world.finished(engine.clickhouse);
    await world.expectExact(engine.clickhouse);
    for (const child of children) expect(await child.stop()).toMatchObject({ code: 0 });
    await world.expectExact(engine.clickhouse);
  }

  test('the old owner is still inserting when the new one finishes its batch', async () => {
    const old = start();
    await old.running;
    await engine.face.inject({ action: 'hold', match: 'INSERT INTO `edge_logs`', times: 2 });
    await world.produce({ edge_logs: 600, function_edge_logs: 200 });
    await waitFor(() => engine.face.held() === 2, 10_000, 'the old owner inserts into both partitions');
    const next = start();
    await next.running;
    await world.finished(engine.clickhouse);
    await world.produce({ edge_logs: 600, function_edge_logs: 200 });
    expect(engine.face.held()).toBe(2);
    engine.face.execute();
    await waitFor(() => engine.face.held() === 0, 10_000, 'the inserts of the old owner are executed');
    expect(logged(next, 'batch_recovered').length + logged(old, 'batch_recovered').length).toBeGreaterThan(0);
    await expectExactAndStop(old, next);
  });

  test('an owner stopped between its intent and its insert wakes after the new owner has gone on', async () => {
    await world.produce({ edge_logs: 600, function_edge_logs: 200 });
    const old = start({ step: 'before_insert', signal: 'SIGSTOP' });
    await old.atStep;
    const next = start();
    await world.finished(engine.clickhouse);
    await world.produce({ edge_logs: 600, function_edge_logs: 200 });
    await world.finished(engine.clickhouse);
    old.signal('SIGCONT');
    await waitFor(() => logged(old, 'group_joined').length > 1, 20_000, 'the old owner is a member again');
    await world.produce({ edge_logs: 600, function_edge_logs: 200 });
    expect(logged(next, 'batch_recovered').length).toBeGreaterThan(0);
    await expectExactAndStop(old, next);
  });

  test('an owner stopped before its intent does not announce that batch when it wakes', async () => {
    const both = [0, 1].map((partition) => ({ topic: world.topicOf('edge_logs'), partition }));
    const announced = (): Promise<(Intent | undefined)[]> => Promise.all(both.map((p) => announcement(world, p)));
    await world.produce({ edge_logs: 600 });
    const old = start({ step: 'before_intent', signal: 'SIGSTOP' }, SESSION_TIMEOUT_MS, 'debug');
    await old.atStep;
    const stoppedAt = Date.now();
    const next = start();
    await world.finished(engine.clickhouse);
    // the intent of the partition at which the old owner did not stop may be its own, until the new one is idle
    await waitFor(async () => (await announced()).every((i) => i === undefined), 10_000, 'nothing is announced');
    old.signal('SIGCONT');
    // nothing is produced meanwhile, so the new owner hides a late intent only after a second of idleness
    const seen: (Intent | undefined)[] = [];
    const areOver = (): boolean =>
      both.every((place) => logged(old, 'lane_over').some((l) => isAbout(l, place))) &&
      logged(old, 'group_joined').length > 1;
    await waitFor(async () => seen.push(...(await announced())) && areOver(), 20_000, 'the old owner has given up');
    seen.push(...(await announced()));
    expect(seen.filter((i) => i !== undefined && i.rules.evaluatedAt <= stoppedAt)).toEqual([]);
    await world.produce({ edge_logs: 600 });
    expect(logged(next, 'batch_recovered').filter((line) => String(line['topic']).startsWith('edge_logs'))).toEqual([]);
    await expectExactAndStop(old, next);
  });

  test("a member that lost a partition commits for it late, and hides the new owner's announcement of a batch whose rows are stored", async () => {
    const topic = world.topicOf('edge_logs');
    await world.produce({ edge_logs: 600 });
    const old = start({ step: 'before_intent', times: 2, holds: true }, 10_000);
    await old.atStep;
    await world.produce({ edge_logs: 300 });
    const next = start({ step: 'after_insert', signal: 'SIGSTOP' }, 10_000);
    await next.atStep;
    // the rows of one partition are stored, under the announcement of the new owner, and the ledger lacks them
    const [stored] = await select<{ partition: number }>(
      engine.clickhouse,
      'SELECT DISTINCT kafka_partition AS partition FROM edge_logs WHERE kafka_topic = {topic:String}',
      { topic },
    );
    const place = { topic, partition: stored!.partition };
    const announced = await announcement(world, place);
    expect(await world.behind(engine.clickhouse)).toContain(`${topic}:0:${place.partition}`);
    old.release();
    const late = await waitFor(
      async () => {
        const seen = await announcement(world, place);
        return seen !== undefined && seen.last < announced!.last ? seen : undefined;
      },
      10_000,
      'the former owner commits what it would have announced',
    );
    expect(late).toMatchObject({ first: announced!.first, rules: { period: announced!.rules.period } });
    expect(late.rules.evaluatedAt).toBeLessThan(announced!.rules.evaluatedAt);
    next.signal('SIGKILL');
    await expectExactAndStop(old);
    const ofPlace = (line: Record<string, unknown>): boolean => line['partition'] === place.partition;
    expect(logged(old, 'intent_dropped').filter(ofPlace)).not.toEqual([]);
    expect(logged(old, 'batch_recovered').filter(ofPlace)).toMatchObject([{ last: announced!.last, announced: false }]);
  });

  test('three processes started and stopped one after another while events flow', { timeout: 120_000 }, async () => {
    const flowing = { stopped: false };
    const flow = (async () => {
      while (!flowing.stopped) {
        await world.produce({ edge_logs: 200, function_edge_logs: 60, auth_logs: 20 });
        await sleep(200);
      }
    })();
    const running: IngestChild[] = [];
    for (let i = 0; i < 3; i++) {
      const child = start();
      await child.running;
      running.push(child);
      await sleep(1_500);
    }
    for (const child of running.slice(0, 2)) {
      expect(await child.stop()).toMatchObject({ code: 0 });
      await sleep(1_000);
    }
    flowing.stopped = true;
    await flow;
    await expectExactAndStop(running[2]!);
  });

  test('a second process on the same data folder refuses, in one line; the first goes on', async () => {
    const folder = temporaryFolder();
    try {
      const options = { env: { ...world.env, DATA_DIR: folder.path }, sessionTimeoutMs: SESSION_TIMEOUT_MS };
      const first = startIngestChild(options);
      await first.running;
      const second = startIngestChild(options);
      expect(await second.exited).toEqual({ code: 1, signal: null });
      expect(second.log()).toMatch(
        /^sluice: the data folder .* is in use by process \d+; stop that first, wait for it if it is a command, or set DATA_DIR to another folder\. If it is npm start, every command but move asks it: set HOST and PORT to its own, or use --url$/m,
      );
      await world.produce({ edge_logs: 300, postgres_logs: 50 });
      await world.finished(first.reader);
      await world.expectExact(first.reader);
      expect(await first.stop()).toMatchObject({ code: 0 });
    } finally {
      folder.remove();
    }
  });
});

const isAbout = (line: Record<string, unknown>, { topic, partition }: Place): boolean =>
  line['topic'] === topic && line['partition'] === partition;

/** The batch that the group's commit announces. */
async function announcement(world: World, place: Place): Promise<Intent | undefined> {
  const commit = await withAdmin((admin) => readCommit(admin, world.groupId, place));
  return decodeIntent(commit?.metadata);
}
