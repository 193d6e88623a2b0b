import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { temporaryFolder } from '../harness/clickhouse.ts';
import { waitFor } from '../harness/wait-for.ts';
import { openFace, type FaceEngine } from './face-engine.ts';
import { endIngestChildren, logged, startIngestChild, type At, type IngestChild } from './ingest-child.ts';
import { createWorld, type World } from './ledger.ts';

// Guarantee: however partitions move between processes, and whatever a former owner still does, every message is once
// in its table and in every
// rollup. A former owner may finish an insert that it began, or begin one that it announced, at any later moment: the
// token makes it count once.
// Its late commit may hide the new owner's: the ledger decides where the next one goes on.

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

  const start = (at?: At): IngestChild =>
    startIngestChild({
      env: { ...world.env, ...engine.env },
      sessionTimeoutMs: SESSION_TIMEOUT_MS,
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
    await engine.face.inject({ action: 'delay', ms: 8_000, match: 'INSERT INTO `edge_logs`', times: 2 });
    await world.produce({ edge_logs: 600, function_edge_logs: 200 });
    await sleep(1_500);
    const next = start();
    await next.running;
    await world.finished(engine.clickhouse);
    await world.produce({ edge_logs: 600, function_edge_logs: 200 });
    await sleep(7_000);
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

  test('an owner stopped before its intent announces nothing when it wakes', async () => {
    await world.produce({ edge_logs: 600 });
    const old = start({ step: 'before_intent', signal: 'SIGSTOP' });
    await old.atStep;
    const next = start();
    await world.finished(engine.clickhouse);
    old.signal('SIGCONT');
    await world.produce({ edge_logs: 600 });
    await waitFor(() => logged(old, 'group_joined').length > 1, 20_000, 'the old owner is a member again');
    expect(logged(next, 'batch_recovered').filter((line) => String(line['topic']).startsWith('edge_logs'))).toEqual([]);
    await expectExactAndStop(old, next);
  });

  test('a member that lost a partition commits for it late, and the new owner is killed while its announcement is hidden', async () => {
    await world.produce({ edge_logs: 600 });
    const old = start({ step: 'before_intent', holdMs: 5_000 });
    await old.atStep;
    const next = start({ step: 'in_insert', delayMs: 10, times: 4 });
    await next.running;
    for (let i = 0; i < 12 && !next.hasEnded(); i++) {
      await world.produce({ edge_logs: 300 });
      await sleep(500);
    }
    expect(await next.exited).toMatchObject({ signal: 'SIGKILL' });
    await world.produce({ edge_logs: 600 });
    await expectExactAndStop(old);
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
        /^sluice: the data folder .* is in use by process \d+; stop that first, or set DATA_DIR to another folder$/m,
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
