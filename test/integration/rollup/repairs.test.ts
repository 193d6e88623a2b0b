import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import type { ClickHouse, Read, Shard, Statement } from '../../../common/clickhouse/clickhouse.ts';
import { refusal } from '../../../common/clickhouse/errors.ts';
import { compareDays, createAudit } from '../../../services/rollup/audit.ts';
import { build } from '../../../services/rollup/period/build.ts';
import { readRollups, statements } from '../../../services/rollup/period/catalogue.ts';
import { DAY, floorTo } from '../../../services/rollup/period/time.ts';
import { admitNew } from '../../../services/rollup/history.ts';
import { beginToday, newestPeriod } from '../../../services/rollup/period/periods.ts';
import { rollupNote } from '../../../services/rollup/readiness.ts';
import { differencesOf, readOpenRepairs, repairOpen, requestRepair } from '../../../services/rollup/repairs.ts';
import { dropExpired } from '../../../services/rollup/retention.ts';
import { openTestStore } from '../../harness/ingest-store.ts';
import { waitFor } from '../../harness/wait-for.ts';
import { edgeEvent, invocationEvent, openWorld, unreadable, type Batch, type World } from './world.ts';

// Guarantee: a repair makes the rollup what raw is, and never takes away what raw once had and lost.

const START = Date.parse('2028-02-27T10:20:00Z');
const REF = 'abcdefghijklmnopqrst';
const DAY_MS = DAY * 1000;
const MINUTE_MS = 60_000;
const ALL = { from: 0, to: 4_294_967_295 };

describe('repairs', { timeout: 240_000 }, () => {
  let world: World;

  beforeAll(async () => {
    world = await openWorld({ now: START, migrated: false });
  });
  afterAll(() => world.close());
  beforeEach(async () => {
    await world.reset({ now: START });
    await beginToday(world.context);
    await admitNew(world.context);
  });

  const eventsOf = (count: number, at = world.now): string[] =>
    Array.from({ length: count }, (_, i) => edgeEvent(at - i * 1000, `https://${REF}.supabase.co/rest/v1/t`));
  const held = async (): Promise<number[]> =>
    (
      await world.select<{ n: number }>(
        'SELECT toUInt32(sum(requests)) AS n FROM api_requests GROUP BY width ORDER BY width',
      )
    ).map((r) => r.n);
  const today = (): number => floorTo(world.now / 1000, DAY);
  const ask = (period: number, from: number, to: number, more: { accept_loss?: boolean } = {}): Promise<void> =>
    requestRepair(world.context, {
      source: 'edge_logs',
      period,
      from,
      to,
      reason: 'command',
      accept_loss: false,
      ...more,
    });
  const outcomes = async (): Promise<string[]> => (await readOpenRepairs(world.clickhouse)).map((r) => r.outcome);
  const sideTablesLeft = (): Promise<unknown[]> =>
    world.select(
      "SELECT name FROM system.tables WHERE database = currentDatabase() AND match(name, '_(build|repair)_')",
    );
  const metric = async (): Promise<string | undefined> =>
    /sluice_rollup_source_incomplete\{rollup="api_requests"\} (\d)/.exec(await world.registry.metrics())?.[1];

  /** Killed between raw and the view. */
  async function insertWithoutView(batch: Batch): Promise<void> {
    await world.clickhouse.execute({ sql: 'DETACH TABLE api_requests_v1_mv' });
    await batch.insert();
    await world.clickhouse.execute({ sql: 'ATTACH TABLE api_requests_v1_mv' });
  }

  /** Every bucket gets that many requests too many. A mutation would wait for its turn among merges. */
  async function countMore(requests: number): Promise<void> {
    await world.clickhouse.execute({
      sql: `INSERT INTO api_requests_v1 SELECT * REPLACE (${requests} AS requests, 0 AS rest, 0 AS storage, 0 AS auth, 0 AS realtime) FROM api_requests_v1 FINAL`,
      settings: { async_insert: 0, insert_deduplicate: 0 },
    });
  }

  /** What ingest's recovery does: the request first, the ledger row last. */
  async function recover(batch: Batch, period: number, at = world.now): Promise<void> {
    await world.clickhouse.execute({
      sql: `INSERT INTO rollup_repairs (source, period, from_time, to_time) VALUES ('edge_logs', toDateTime(${period}, 'UTC'), toDateTime(${Math.floor(at / 1000) - 60}, 'UTC'), toDateTime(${Math.floor(at / 1000) + 1}, 'UTC'))`,
    });
    await batch.record();
  }

  test('after a kill between raw and the view, the recovery asks for a repair, and the rollup is right in the next round', async () => {
    await world.send('edge_logs', eventsOf(5, world.now - 3 * 3_600_000));
    const batch = world.announce('edge_logs', eventsOf(4));
    await insertWithoutView(batch);
    const period = await newestPeriod(world.context);
    await recover(batch, period);
    expect(await held()).toEqual([5, 5, 5]);
    expect(await repairOpen(world.context)).toBe(0);
    expect(await held()).toEqual([9, 9, 9]);
    // and nothing more is done
    expect(await repairOpen(world.context)).toBe(0);
    expect(await world.registry.metrics()).toContain('sluice_rollup_repairs_total{rollup="api_requests"} 1');
  });

  test('what an outage left of many batches is one build', async () => {
    const period = await newestPeriod(world.context);
    for (const seconds of [0, 1, 2]) {
      const batch = world.announce('edge_logs', eventsOf(4));
      await insertWithoutView(batch);
      await recover(batch, period, world.now + seconds * 1000);
    }
    expect(await held()).toEqual([]);
    expect(await repairOpen(world.context)).toBe(0);
    expect(await held()).toEqual([12, 12, 12]);
    expect(await world.registry.metrics()).toContain('sluice_rollup_repairs_total{rollup="api_requests"} 1');
  });

  test('a repair waits for the batch to be finished, and closes the open period', async () => {
    const batch = world.announce('edge_logs', eventsOf(4));
    await insertWithoutView(batch);
    const period = await newestPeriod(world.context);
    await ask(period, today(), today() + DAY);
    expect(await repairOpen(world.context)).toBe(1);
    expect(await outcomes()).toEqual(['unfinished']);
    expect(await newestPeriod(world.context)).toBeGreaterThan(period);
    await world.send('edge_logs', eventsOf(2));
    await batch.insert();
    await batch.record();
    expect(await repairOpen(world.context)).toBe(0);
    expect(await held()).toEqual([6, 6, 6]);
  });

  // a request of a former owner that reaches raw when nobody finishes its batch any more
  test.each([
    ['a batch that the ledger has without them: Kafka had lost their records', 0, 3, 3],
    ['a batch that the ledger has passed over: its announcement was lost too', 0, 4, 5],
    ['a life of the topic that is over', 1, 0, 0],
  ])('a period is built with rows that came too late for %s', async (_, incarnation, first, ledgerLast) => {
    const late = world.announce('edge_logs', eventsOf(4));
    const { partition } = late;
    await insertWithoutView(late);
    await ask(today(), today(), today() + DAY);
    expect(await repairOpen(world.context)).toBe(1);
    await world.clickhouse.execute({
      sql: `INSERT INTO batches (topic, incarnation, partition, first, last, source, dead_lettered) VALUES ('edge_logs', ${incarnation}, ${partition}, ${first}, ${ledgerLast}, 'edge_logs', 1)`,
    });
    expect(await repairOpen(world.context)).toBe(0);
    expect(await held()).toEqual([4, 4, 4]);
  });

  test('a batch in flight after the rebuild is no difference that the rebuild has left', async () => {
    await world.send('edge_logs', eventsOf(4));
    await ask(today(), today(), today() + DAY);
    const batch = world.announce('edge_logs', eventsOf(3));
    const engine = world.clickhouse;
    let isRebuilt = false;
    const execute = async (s: Statement): Promise<void> => {
      await engine.execute(s);
      if (isRebuilt || !s.sql.startsWith('DROP TABLE IF EXISTS api_requests_v1_repair_')) return;
      isRebuilt = true;
      await insertWithoutView(batch);
    };
    const error = vi.spyOn(world.context.logger, 'error');
    expect(await repairOpen({ ...world.context, clickhouse: { ...engine, execute } })).toBe(1);
    expect([isRebuilt, await outcomes(), error.mock.calls]).toEqual([true, ['unfinished'], []]);
    error.mockRestore();
    await recover(batch, today());
    expect(await repairOpen(world.context)).toBe(0);
    expect(await held()).toEqual([7, 7, 7]);
  });

  // how the retry of a repair may end without a look at what the rollup holds
  test.each([
    ['taken by another build', statements.runningFills, () => ({ query_id: 'fill' })],
    ['unfinished', statements.unfinishedBatches, () => ({ topic: 'edge_logs', incarnation: 0, partition: 7, last: 0 })],
    ['busy', statements.periodState, (n: number) => ({ rows: n, fingerprint: '0' })],
  ])('one that left a difference reports it, also while its next attempt is %s', async (_, sql, row) => {
    await world.send('edge_logs', eventsOf(4));
    await ask(today(), today(), today() + DAY);
    const engine = world.clickhouse;
    let isWaiting = false;
    let looks = 0;
    const execute = async (s: Statement): Promise<void> => {
      await engine.execute(s);
      if (!isWaiting && s.sql.includes('REPLACE PARTITION')) await countMore(1);
    };
    const read = async (of: Read) =>
      isWaiting && of.sql === sql
        ? { body: Buffer.from(JSON.stringify(row(looks++))), readRows: undefined, readBytes: undefined }
        : await engine.read(of);
    const settings = { ...world.context.settings, ROLLUP_BUILD_PERCENT: 100 };
    const context = { ...world.context, settings, clickhouse: { ...engine, execute, read } };
    const differences = async (): Promise<string | undefined> =>
      /sluice_rollup_differences\{rollup="api_requests"\} (\d)/.exec(await world.registry.metrics())?.[1];
    expect([await repairOpen(context), await outcomes(), await differences()]).toEqual([1, ['differs'], '1']);
    isWaiting = true;
    expect([await repairOpen(context), await outcomes(), await differences()]).toEqual([1, ['differs'], '1']);
    expect(looks).toBeGreaterThan(0);
    expect([await repairOpen({ ...context, clickhouse: engine }), await differences()]).toEqual([0, '0']);
    expect(await held()).toEqual([4, 4, 4]);
  });

  // a command waits two minutes for its repairs
  test.each([
    ['recovery', 1],
    ['command', 2],
  ] as const)('that wait for a batch, of a %s, are looked at %d times in two rounds', async (reason, rounds) => {
    await world.announce('edge_logs', eventsOf(4)).insert();
    const span = { period: today(), from: today(), to: today() + DAY };
    await requestRepair(world.context, { source: 'edge_logs', ...span, reason, accept_loss: false });
    const engine = world.clickhouse;
    let looks = 0;
    const read = async (of: Read) => {
      if (of.sql === statements.unfinishedBatches) looks++;
      return await engine.read(of);
    };
    const settings = { ...world.context.settings, ROLLUP_BUILD_PERCENT: 1 };
    const context = { ...world.context, settings, clickhouse: { ...engine, read } };
    expect(await repairOpen(context)).toBe(1);
    expect(await readOpenRepairs(engine)).toMatchObject([{ outcome: 'unfinished' }]);
    const once = looks;
    expect(await repairOpen(context)).toBe(1);
    expect(looks).toBe(rounds * once);
  });

  test('a side table that may not be created is an error, and not the build of another process', async () => {
    await world.send('edge_logs', eventsOf(4));
    const engine = world.clickhouse;
    const execute = async (s: Statement): Promise<void> => {
      if (/^CREATE TABLE \w+_build_/.test(s.sql)) throw refusal(497, 'Not enough privileges');
      await engine.execute(s);
    };
    const rollup = (await readRollups(engine)).find((r) => r.name === 'api_requests')!;
    await expect(
      build({ ...world.context, clickhouse: { ...engine, execute } }, rollup, today()),
    ).rejects.toMatchObject({ code: 497 });
  });

  describe('that ClickHouse refuses', () => {
    const askFor = (source: string, hour = 0): Promise<void> =>
      requestRepair(world.context, {
        source,
        period: today(),
        from: today() + hour * 3600,
        to: today() + hour * 3600 + 7200,
        reason: 'recovery',
        accept_loss: false,
      });
    const inAMinute = async (work: () => Promise<void>): Promise<void> => {
      const later = performance.now() + 61_000;
      const clock = vi.spyOn(performance, 'now').mockReturnValue(later);
      await work().finally(() => clock.mockRestore());
    };

    test('keep no later one waiting, are told of, and are done once they can be', async () => {
      await world.send('edge_logs', eventsOf(4));
      await world.send('function_edge_logs', [invocationEvent(world.now, 'p', 'f')]);
      await askFor('edge_logs');
      await askFor('function_edge_logs');
      const engine = world.clickhouse;
      let isBroken = true;
      let reads = 0;
      const read = async (of: Read) => {
        if (of.sql !== statements.periodState || of.params?.['source'] !== 'edge_logs') return await engine.read(of);
        reads++;
        if (isBroken) throw unreadable();
        return await engine.read(of);
      };
      const context = { ...world.context, clickhouse: { ...engine, read } };
      const error = vi.spyOn(context.logger, 'error');
      expect(await repairOpen(context)).toBe(1);
      expect(error.mock.calls).toEqual([
        [
          expect.objectContaining({
            work: 'repairs',
            rollup: 'api_requests',
            period: new Date(today() * 1000).toISOString(),
            err: expect.objectContaining({ code: 40 }),
          }),
          'rollup_work_failed',
        ],
      ]);
      error.mockRestore();
      expect(await readOpenRepairs(world.clickhouse)).toMatchObject([{ source: 'edge_logs', outcome: 'failed' }]);
      expect(await metric()).toBe('1');
      isBroken = false;
      expect(await repairOpen(context)).toBe(1);
      expect([reads, await metric()]).toEqual([1, '1']);
      await inAMinute(async () => expect(await repairOpen(context)).toBe(0));
      expect(await metric()).toBe('0');
    });

    test('together are tried alone in the next round', async () => {
      await world.send('edge_logs', eventsOf(4));
      await askFor('edge_logs', 0);
      await askFor('edge_logs', 1);
      await askFor('edge_logs', 9);
      const engine = world.clickhouse;
      // one block of the first hour
      const execute = async (s: Statement): Promise<void> => {
        if (
          s.sql.startsWith('INSERT INTO api_requests_v1_repair_') &&
          s.sql.includes(`timestamp >= toDateTime64(${today()},`)
        )
          throw unreadable();
        await engine.execute(s);
      };
      const context = { ...world.context, clickhouse: { ...engine, execute } };
      expect(await repairOpen(context)).toBe(2);
      expect(await repairOpen(context)).toBe(1);
      expect(await readOpenRepairs(world.clickhouse)).toMatchObject([{ from: today(), outcome: 'failed' }]);
    });
  });

  describe('of several shards', () => {
    const names = ['s1', 's2'];
    /** how many partitions were swapped on each */
    let swaps: Record<string, number>;
    /** what a shard answers instead of rows */
    let answers: Record<string, (sql: string) => Promise<object[] | undefined>>;
    beforeEach(async () => {
      [swaps, answers] = [{ s1: 0, s2: 0 }, {}];
      await world.send('edge_logs', eventsOf(4));
      await world.send('function_edge_logs', [invocationEvent(world.now, 'p', 'f')]);
      await ask(today(), today(), today() + DAY);
    });

    const shardsOf = (order: readonly string[]): ClickHouse => {
      const engine = world.clickhouse;
      const shard = (name: string): Shard => ({
        ...engine,
        shard: name,
        read: async (read: Read) => {
          const given = await answers[name]?.(read.sql);
          if (given === undefined) return await engine.read(read);
          const body = Buffer.from(given.map((row) => JSON.stringify(row)).join('\n'));
          return { body, readRows: undefined, readBytes: undefined };
        },
        execute: async (statement: Statement) => {
          if (statement.sql.includes('REPLACE PARTITION')) swaps[name]!++;
          await engine.execute(statement);
        },
      });
      return { ...engine, shards: order.map(shard) };
    };
    const isLost = (): Promise<never> => Promise.reject(new Error('this shard is lost'));

    test.each([[names], [names.toReversed()]])(
      'one that cannot be reached keeps no other from its repairs, which are done once: %j',
      async (order) => {
        const context = { ...world.context, clickhouse: shardsOf(order) };
        await requestRepair(context, {
          source: 'function_edge_logs',
          period: today(),
          from: today(),
          to: today() + DAY,
          reason: 'command',
          accept_loss: false,
        });
        answers = { s2: isLost };
        for (let round = 0; round < 3; round++) await expect(repairOpen(context)).rejects.toThrow('this shard is lost');
        expect(swaps).toEqual({ s1: 2, s2: 0 });
        expect(await world.registry.metrics()).toContain('sluice_rollup_repairs_total{rollup="api_requests"} 1');
        expect(await outcomes()).toEqual(['', '']);
        // the same span, requested again, is another request
        await ask(today(), today(), today() + DAY);
        await expect(repairOpen(context)).rejects.toThrow('this shard is lost');
        expect(swaps).toEqual({ s1: 3, s2: 0 });
        answers = {};
        expect(await repairOpen(context)).toBe(0);
        expect(swaps).toEqual({ s1: 3, s2: 2 });
        expect(await repairOpen(context)).toBe(0);
      },
    );

    test('one where a batch is not finished does not make the other one build again', async () => {
      const context = { ...world.context, clickhouse: shardsOf(names) };
      const batch = { topic: 'edge_logs', incarnation: 0, partition: 7, last: 0 };
      answers = { s2: async (sql) => (sql === statements.unfinishedBatches ? [batch] : undefined) };
      for (let round = 0; round < 3; round++) expect(await repairOpen(context)).toBe(1);
      expect([swaps, await outcomes()]).toEqual([{ s1: 1, s2: 0 }, ['unfinished']]);
      expect(await world.registry.metrics()).toContain('sluice_rollup_repairs_total{rollup="api_requests"} 1');
      answers = {};
      expect(await repairOpen(context)).toBe(0);
      expect(swaps).toEqual({ s1: 1, s2: 1 });
    });

    test('a request that joins an open one is built everywhere', async () => {
      const context = { ...world.context, clickhouse: shardsOf(names) };
      const batch = { topic: 'edge_logs', incarnation: 0, partition: 7, last: 0 };
      answers = { s2: async (sql) => (sql === statements.unfinishedBatches ? [batch] : undefined) };
      expect(await repairOpen(context)).toBe(1);
      await ask(today(), today(), today() + 3600);
      for (let round = 0; round < 2; round++) expect(await repairOpen(context)).toBe(2);
      expect(swaps).toEqual({ s1: 2, s2: 0 });
    });

    test('an accepted loss answers no request that came after its build on a shard', async () => {
      const context = { ...world.context, clickhouse: shardsOf(names) };
      const unfinished = async (sql: string): Promise<object[] | undefined> =>
        sql === statements.unfinishedBatches
          ? [{ topic: 'edge_logs', incarnation: 0, partition: 7, last: 0 }]
          : undefined;
      await ask(today(), today(), today() + DAY, { accept_loss: true });
      answers = { s2: unfinished };
      expect(await repairOpen(context)).toBe(1);
      await ask(today(), today(), today() + 3600);
      answers = { s1: unfinished };
      await repairOpen(context);
      expect(await outcomes()).toEqual(['unfinished']);
      answers = {};
      const before = swaps['s1'];
      expect(await repairOpen(context)).toBe(0);
      expect(swaps['s1']).toBe(before! + 1);
    });

    test('it is built again where another service has failed since', async () => {
      const context = { ...world.context, clickhouse: shardsOf(names) };
      const batch = { topic: 'edge_logs', incarnation: 0, partition: 7, last: 0 };
      answers = { s2: async (sql) => (sql === statements.unfinishedBatches ? [batch] : undefined) };
      await repairOpen(context);
      const side = `api_requests_v1_repair_${today()}_0a1b2c3d`;
      await world.clickhouse.execute({ sql: `CREATE TABLE ${side} AS api_requests_v1` });
      for (let round = 0; round < 2; round++) expect(await repairOpen(context)).toBe(1);
      expect(swaps).toEqual({ s1: 2, s2: 0 });
    });

    test('what one of them lacks is still reported while it cannot be reached', async () => {
      const context = { ...world.context, clickhouse: shardsOf(names) };
      const batch = { topic: 'edge_logs', incarnation: 0, partition: 7, last: 0, stored: 2, rows: 1 };
      answers = { s2: async (sql) => (sql === statements.lostBatches ? [batch] : undefined) };
      expect(await repairOpen(context)).toBe(1);
      answers = { s2: isLost };
      await expect(repairOpen(context)).rejects.toThrow('this shard is lost');
      expect([await metric(), await outcomes()]).toEqual(['1', ['incomplete']]);
    });
  });

  test('rows outside of the span are copied, rows within it are made from raw', async () => {
    await world.send('edge_logs', eventsOf(5, world.now - 5 * 3_600_000));
    await world.send('edge_logs', eventsOf(4));
    // wrong on both sides of the span
    await countMore(10);
    await ask(today(), Math.floor(world.now / 1000) - 60, Math.floor(world.now / 1000) + 1);
    expect(await repairOpen(world.context)).toBe(0);
    const hours = await world.select<{ n: number }>(
      'SELECT toUInt32(sum(requests)) AS n FROM api_requests WHERE width = 3600 GROUP BY at ORDER BY at',
    );
    expect(hours.map((h) => h.n)).toEqual([15, 4]);
  });

  test('a day is the sum of its hours, those made from raw and those copied', async () => {
    const invocations = (count: number, at: number): string[] =>
      Array.from({ length: count }, (_, i) => invocationEvent(at - i * 1000, 'p', 'f'));
    await world.send('function_edge_logs', invocations(5, world.now - 5 * 3_600_000));
    await world.send('function_edge_logs', invocations(4, world.now));
    // wrong on both sides of the span
    await world.clickhouse.execute({
      sql: 'ALTER TABLE function_invocations_v1 UPDATE count = count + 10 WHERE 1',
      settings: { mutations_sync: 2 },
    });
    const second = Math.floor(world.now / 1000);
    await requestRepair(world.context, {
      source: 'function_edge_logs',
      period: today(),
      from: second - 60,
      to: second + 1,
      reason: 'command',
      accept_loss: false,
    });
    expect(await repairOpen(world.context)).toBe(0);
    const buckets = await world.select<{ n: number }>(
      'SELECT toUInt32(sum(count)) AS n FROM function_invocations WHERE width >= 3600 GROUP BY width, at ORDER BY width, at',
    );
    expect(buckets.map((b) => b.n)).toEqual([15, 4, 19]);
  });

  test.each([1, 2, 3, 4])(
    'batches that arrive right before %s swaps of a repair, outside of its span, count once',
    async (batches) => {
      const then = world.now - 5 * 3_600_000;
      await world.send('edge_logs', eventsOf(5, then));
      await world.send('edge_logs', eventsOf(4));
      await ask(today(), Math.floor(then / 1000) - 60, Math.floor(then / 1000) + 1);
      const engine = world.clickhouse;
      let left = batches;
      const execute = async (s: Statement): Promise<void> => {
        if (s.sql.includes('REPLACE PARTITION') && left-- > 0)
          await world.send('edge_logs', eventsOf(3), { period: today() });
        await engine.execute(s);
      };
      const context = { ...world.context, clickhouse: { ...engine, execute } };
      for (let round = 0; round < 3 && (await repairOpen(context)) > 0; round++);
      expect(await readOpenRepairs(world.clickhouse)).toEqual([]);
      const sent = 9 + 3 * batches;
      expect(await held()).toEqual([sent, sent, sent]);
      expect(await sideTablesLeft()).toEqual([]);
    },
  );

  test('a request that comes while the same one is worked on is not lost', async () => {
    await world.send('edge_logs', eventsOf(4));
    await ask(today(), today(), today() + DAY);
    const engine = world.clickhouse;
    let again = false;
    await repairOpen({
      ...world.context,
      clickhouse: {
        ...engine,
        execute: async (s: Statement) => {
          if (!again && s.sql.includes('REPLACE PARTITION')) {
            again = true;
            await ask(today(), today(), today() + DAY);
          }
          await engine.execute(s);
        },
      },
    });
    expect(await readOpenRepairs(world.clickhouse)).toHaveLength(1);
    expect(await repairOpen(world.context)).toBe(0);
  });

  test('a period whose minutes have expired is rebuilt and compared without them', async () => {
    await world.send('edge_logs', eventsOf(10));
    const period = today();
    world.now += 40 * DAY_MS;
    await beginToday(world.context);
    await dropExpired(world.context);
    expect(await held()).toEqual([10]);
    expect(await compareDays(world.context, 60)).toBe(0);
    await ask(period, period, period + DAY);
    expect(await repairOpen(world.context)).toBe(0);
    expect(await held()).toEqual([10]);
  });

  test('a period whose hours have expired before its raw days is not built or compared again', async () => {
    const settings = { ...world.context.settings, ROLLUP_1M_RETENTION_DAYS: 8, ROLLUP_1H_RETENTION_DAYS: 8 };
    const context = { ...world.context, settings };
    await world.send('edge_logs', eventsOf(10));
    const period = today();
    world.now += 12 * DAY_MS;
    await beginToday(world.context);
    await dropExpired(context);
    expect(await compareDays(context, 30)).toBe(0);
    await ask(period, period, period + DAY);
    expect(await repairOpen(context)).toBe(0);
    expect(await held()).toEqual([]);
  });

  /** The span was requested and built by a clock that was far ahead. */
  async function buildAhead(from: number, to: number): Promise<void> {
    for (const done of [false, true])
      await world.clickhouse.execute({
        sql: `INSERT INTO rollup_repairs (source, period, from_time, to_time, done, requested_at) VALUES ('edge_logs', toDateTime(${today()}, 'UTC'), toDateTime(${from}, 'UTC'), toDateTime(${to}, 'UTC'), ${done}, '2099-01-01 00:00:00')`,
      });
  }

  test('a request is open also if the same span was built by a clock that was ahead', async () => {
    await buildAhead(today(), today() + DAY);
    for (let time = 0; time < 2; time++) {
      await ask(today(), today(), today() + DAY);
      expect(await readOpenRepairs(world.clickhouse)).toHaveLength(1);
      expect(await repairOpen(world.context)).toBe(0);
    }
  });

  test("ingest's request is open also if the same span was built by a clock that was ahead", async () => {
    const { first, last } = await world.send('edge_logs', eventsOf(5));
    const store = openTestStore(world.clickhouse, { source: 'edge_logs' });
    const request = (): Promise<void> =>
      store.requestRepair({ incarnation: 0, first, last, rules: store.rulesAt(world.now) }, today());
    await request();
    const [span] = await readOpenRepairs(world.clickhouse);
    expect(await repairOpen(world.context)).toBe(0);
    await buildAhead(span!.from, span!.to);
    for (let time = 0; time < 2; time++) {
      await request();
      expect(await readOpenRepairs(world.clickhouse)).toMatchObject([{ from: span!.from, to: span!.to }]);
      expect(await repairOpen(world.context)).toBe(0);
    }
  });

  describe('where raw has lost rows that the ledger knows of, the rollup is left alone', () => {
    async function lose(): Promise<void> {
      const [part] = await world.select<{ name: string }>(
        "SELECT name FROM system.parts WHERE active AND database = currentDatabase() AND table = 'edge_logs' ORDER BY name LIMIT 1",
      );
      await world.clickhouse.execute({ sql: `ALTER TABLE edge_logs DETACH PART '${part!.name}'` });
    }

    async function destroy(where: string): Promise<void> {
      await world.clickhouse.execute({ sql: 'SYSTEM START MERGES edge_logs' });
      await world.clickhouse.execute({
        sql: `ALTER TABLE edge_logs DELETE WHERE ${where}`,
        settings: { mutations_sync: 1 },
      });
    }

    afterEach(() => world.clickhouse.execute({ sql: 'SYSTEM START MERGES edge_logs' }));
    beforeEach(async () => {
      // one part a batch
      await world.clickhouse.execute({ sql: 'SYSTEM STOP MERGES edge_logs' });
      for (let i = 0; i < 4; i++) {
        await world.send('edge_logs', eventsOf(10));
        world.now += MINUTE_MS;
      }
    });

    test('a part of raw is detached: the audit asks, the repair is refused and tells, until the part is back', async () => {
      const [part] = await world.select<{ name: string }>(
        "SELECT name FROM system.parts WHERE active AND database = currentDatabase() AND table = 'edge_logs' ORDER BY name LIMIT 1",
      );
      await lose();
      world.now += 3 * MINUTE_MS;
      expect(await createAudit(world.context)()).toBe(1);
      expect(await repairOpen(world.context)).toBe(1);
      expect(await held()).toEqual([40, 40, 40]);
      expect([await outcomes(), await metric()]).toEqual([['incomplete'], '1']);
      expect((await rollupNote(world.clickhouse))?.note).toContain('(incomplete)');
      await world.clickhouse.execute({ sql: `ALTER TABLE edge_logs ATTACH PART '${part!.name}'` });
      expect(await repairOpen(world.context)).toBe(0);
      expect([await held(), await metric()]).toEqual([[40, 40, 40], '0']);
    });

    test('a refused repair is tried again within the share of the time that builds have, a new one at once', async () => {
      await destroy('kafka_offset >= 20');
      await world.send('function_edge_logs', [invocationEvent(world.now, 'p', 'f')]);
      await ask(today(), today(), today() + DAY);
      const engine = world.clickhouse;
      let looks = 0;
      const read = async (of: Read) => {
        if (of.sql === statements.lostBatches && of.params?.['source'] === 'edge_logs') looks++;
        return await engine.read(of);
      };
      // an attempt may take a hundredth of the time
      const settings = { ...world.context.settings, ROLLUP_BUILD_PERCENT: 1 };
      const context = { ...world.context, settings, clickhouse: { ...engine, read } };
      expect(await repairOpen(context)).toBe(1);
      const once = looks;
      const span = { period: today(), from: today(), to: today() + DAY };
      await requestRepair(context, { source: 'function_edge_logs', ...span, reason: 'recovery', accept_loss: false });
      expect(await repairOpen(context)).toBe(1);
      expect([looks, await metric(), await outcomes()]).toEqual([once, '1', ['incomplete']]);
      const later = performance.now() + 3_600_000;
      const clock = vi.spyOn(performance, 'now').mockReturnValue(later);
      expect(await repairOpen(context)).toBe(1);
      clock.mockRestore();
      expect(looks).toBe(2 * once);
      // requested again, it is another request
      await ask(today(), today(), today() + DAY);
      await repairOpen(context);
      expect(looks).toBe(3 * once);
    });

    test('the raw table comes from an older backup: newer batches are missing in it', async () => {
      await destroy('kafka_offset >= 20');
      await ask(today(), today(), today() + DAY);
      expect(await repairOpen(world.context)).toBe(1);
      expect([await held(), await outcomes()]).toEqual([[40, 40, 40], ['incomplete']]);
    });

    test('all rows of a batch are missing: its period is known from the ledger alone', async () => {
      await destroy('kafka_offset < 10');
      await ask(today(), today(), today() + DAY);
      expect(await repairOpen(world.context)).toBe(1);
      expect(await held()).toEqual([40, 40, 40]);
    });

    test('a batch is missing that came before its period began: the service was down at midnight', async () => {
      // 09:20: the register still names yesterday's period, the rows are of today's
      world.now += 23 * 60 * MINUTE_MS;
      await world.send('edge_logs', eventsOf(10));
      await beginToday(world.context);
      await world.send('edge_logs', eventsOf(10));
      await destroy('kafka_offset BETWEEN 40 AND 49');
      await ask(today(), today(), today() + DAY);
      expect(await repairOpen(world.context)).toBe(1);
      expect([await held(), await outcomes()]).toEqual([[60, 60, 60], ['incomplete']]);
    });

    test("the loss of yesterday's batch keeps today's period from nothing", async () => {
      world.now += 23 * 60 * MINUTE_MS;
      await beginToday(world.context);
      await world.send('edge_logs', eventsOf(10));
      await destroy('kafka_offset < 10');
      await ask(today(), today(), today() + DAY);
      expect(await repairOpen(world.context)).toBe(0);
    });

    test('an operator may accept the loss', async () => {
      await lose();
      await ask(today(), today(), today() + DAY);
      expect(await repairOpen(world.context)).toBe(1);
      await ask(today(), today(), today() + DAY, { accept_loss: true });
      expect(await repairOpen(world.context)).toBe(0);
      expect([await held(), await metric()]).toEqual([[30, 30, 30], '0']);
    });

    test('a loss accepted for a day ends what the audit asked for within it', async () => {
      await lose();
      world.now += 3 * MINUTE_MS;
      expect(await createAudit(world.context)()).toBe(1);
      expect(await repairOpen(world.context)).toBe(1);
      await ask(today(), today(), today() + DAY, { accept_loss: true });
      await repairOpen(world.context);
      expect(await readOpenRepairs(world.clickhouse)).toEqual([]);
      expect(await repairOpen(world.context)).toBe(0);
      expect([await held(), await metric()]).toEqual([[30, 30, 30], '0']);
    });

    test('an accepted loss stays within its span, also if another process builds the period at once', async () => {
      await destroy('kafka_offset < 10');
      const hour = floorTo(world.now / 1000, 3600);
      // of the other process
      await world.clickhouse.execute({
        sql: `CREATE TABLE api_requests_v1_repair_${today()}_0123abcd AS api_requests_v1`,
      });
      await ask(today(), hour - 3600, hour, { accept_loss: true });
      expect(await repairOpen(world.context)).toBe(0);
      expect(await held()).toEqual([40, 40, 40]);
    });
  });

  test('days that retention dropped stay in the rollup, also when the retention is raised and an older event comes', async () => {
    const keeping = (days: number) => ({
      ...world.context,
      settings: { ...world.context.settings, RAW_RETENTION_DAYS: days },
    });
    for (let d = 0; d < 6; d++) {
      await beginToday(world.context);
      await world.send('edge_logs', eventsOf(10));
      await dropExpired(keeping(2));
      world.now += DAY_MS;
    }
    world.now -= DAY_MS - 3_600_000;
    await dropExpired(keeping(2));
    expect((await world.select<{ n: number }>('SELECT toUInt32(count()) AS n FROM edge_logs'))[0]!.n).toBe(30);
    await world.send('edge_logs', eventsOf(1, world.now - 20 * DAY_MS));
    await beginToday(world.context);
    expect(await compareDays(keeping(30), 10)).toBe(0);
    for (let d = 0; d < 7; d++) await ask(today() - d * DAY, today() - 30 * DAY, today() + DAY);
    expect(await repairOpen(keeping(30))).toBe(0);
    expect(await held()).toEqual([61, 61, 61]);
  });

  test('a row older than dropped days, stored after the retention was raised, is repaired if its batch was killed before its views', async () => {
    const keeping = (days: number) => ({
      ...world.context,
      settings: { ...world.context.settings, RAW_RETENTION_DAYS: days },
    });
    for (let d = 0; d < 6; d++) {
      await beginToday(world.context);
      await world.send('edge_logs', eventsOf(10));
      await dropExpired(keeping(2));
      world.now += DAY_MS;
    }
    // with the longer retention: two midnights after the last drop
    world.now += DAY_MS;
    await beginToday(world.context);
    const old = world.now - 5 * DAY_MS;
    const batch = world.announce('edge_logs', [...eventsOf(1), ...eventsOf(1, old)]);
    await insertWithoutView(batch);
    const period = await newestPeriod(world.context);
    await recover(batch, period);
    await recover(batch, period, old);
    expect(await held()).toEqual([60, 60, 60]);
    expect(await repairOpen(keeping(30))).toBe(0);
    expect(await held()).toEqual([62, 62, 62]);
    // the audit sees such rows too
    await world.clickhouse.execute({
      sql: `ALTER TABLE api_requests_v1 DELETE WHERE period = toDateTime(${period}, 'UTC')`,
      settings: { mutations_sync: 1 },
    });
    world.now += DAY_MS;
    await beginToday(world.context);
    expect(await compareDays(keeping(30), 10)).toBe(1);
    expect(await repairOpen(keeping(30))).toBe(0);
    expect(await held()).toEqual([62, 62, 62]);
  });

  test.each([
    ['5 minutes', 5],
    ['30 minutes', 30],
    ['2 days', 2 * 1_440],
    ['100 days', 100 * 1_440],
  ])(
    'with an ingest host %s ahead, a repair of the running period neither loses nor doubles its rows',
    async (_, minutes) => {
      for (let i = 0; i < 3; i++) {
        await world.send('edge_logs', eventsOf(10), { evaluatedAt: world.now + minutes * MINUTE_MS, partition: 0 });
        await world.send('edge_logs', eventsOf(3, world.now + minutes * MINUTE_MS), {
          evaluatedAt: world.now + minutes * MINUTE_MS,
          partition: 2,
        });
        await world.send('edge_logs', eventsOf(3), { partition: 1 });
        world.now += MINUTE_MS;
      }
      const rollup = (await readRollups(world.clickhouse)).find((r) => r.name === 'api_requests')!;
      await countMore(1);
      for (const d of await differencesOf(world.context, rollup, undefined, ALL))
        await ask(d.period, d.minute, d.minute + 3600);
      expect(await repairOpen(world.context)).toBe(0);
      await world.send('edge_logs', eventsOf(3), { partition: 1 });
      await world.send('edge_logs', eventsOf(3, world.now + minutes * MINUTE_MS), {
        evaluatedAt: world.now + minutes * MINUTE_MS,
        partition: 2,
      });
      expect(await held()).toEqual([54, 54, 54]);
      expect(await differencesOf(world.context, rollup, undefined, ALL)).toEqual([]);
    },
  );

  test('a rebuild that is killed at any statement is found and finished, whatever the age of its period', async () => {
    await world.send('edge_logs', eventsOf(10));
    const period = today();
    world.now += 25 * DAY_MS;
    await beginToday(world.context);
    const engine = world.clickhouse;
    for (let at = 1, finished = false; !finished; at++) {
      await world.clickhouse.execute({
        sql: 'ALTER TABLE api_requests_v1 DELETE WHERE 1',
        settings: { mutations_sync: 1 },
      });
      await ask(period, period, period + DAY);
      let statements = 0;
      finished = await repairOpen({
        ...world.context,
        clickhouse: {
          ...engine,
          execute: async (s: Statement) => {
            if (++statements === at) throw new Error('killed');
            await engine.execute(s);
          },
        },
      }).then(
        () => true,
        (error: unknown) => {
          expect((error as Error).message).toBe('killed');
          return false;
        },
      );
      // killed right after its swap, it waits until a server has dropped the parts that the swap replaced
      await waitFor(async () => (await repairOpen(world.context)) === 0, 10_000, `repaired, killed at ${at}`);
      expect(await held(), `killed at ${at}`).toEqual([10, 10, 10]);
    }
  });

  test('a swap that a killed server has left half done is found, and nothing of it is copied', async () => {
    await world.send('edge_logs', eventsOf(5, world.now - 5 * 3_600_000));
    await world.send('edge_logs', eventsOf(4));
    const engine = world.clickhouse;
    let isKilled = false;
    await ask(today(), Math.floor(world.now / 1000) - 60, Math.floor(world.now / 1000) + 1);
    const killed = repairOpen({
      ...world.context,
      clickhouse: {
        ...engine,
        execute: async (s: Statement) => {
          if (isKilled) throw new Error('killed');
          if (!s.sql.includes('REPLACE PARTITION')) return engine.execute(s);
          isKilled = true;
          // what the disk holds then: the new parts are there, the old ones still are
          await engine.execute({ ...s, sql: s.sql.replace('REPLACE PARTITION', 'ATTACH PARTITION') });
          throw new Error('killed');
        },
      },
    });
    await expect(killed).rejects.toThrow('killed');
    expect(await held()).toEqual([18, 18, 18]);
    // nor is it forgotten by a build that has to wait
    const batch = world.announce('edge_logs', eventsOf(2));
    await batch.insert();
    expect(await repairOpen(world.context)).toBe(1);
    expect(await outcomes()).toEqual(['unfinished']);
    await batch.record();
    expect(await repairOpen(world.context)).toBe(0);
    expect(await held()).toEqual([11, 11, 11]);
    expect(await sideTablesLeft()).toEqual([]);
  });

  test('before 26.7, a build has replaced parts removed at once although another build of its table ends', async () => {
    await world.send('edge_logs', eventsOf(4));
    const engine = world.clickhouse;
    const isLifetimeSet = async (): Promise<boolean> => {
      const [table] = await world.select<{ sql: string }>(
        "SELECT create_table_query AS sql FROM system.tables WHERE database = currentDatabase() AND name = 'api_requests_v1'",
      );
      return table!.sql.includes('old_parts_lifetime = 0');
    };
    const lifetimes: boolean[] = [];
    let looks = 0;
    // parts that stay for two looks
    const older: typeof engine = {
      ...engine,
      version: '25.8.2.1',
      read: async (read) =>
        read.sql === statements.replacedParts && looks++ < 2
          ? { body: Buffer.from('{"name":"part"}'), readRows: undefined, readBytes: undefined }
          : await engine.read(read),
      execute: async (statement) => {
        if (statement.sql.startsWith('ALTER TABLE api_requests_v1 DROP PARTITION'))
          lifetimes.push(await isLifetimeSet());
        await engine.execute(statement);
      },
    };
    // the other build ends while this one waits
    world.onWait = () => engine.execute({ sql: 'ALTER TABLE api_requests_v1 RESET SETTING old_parts_lifetime' });
    const rollup = (await readRollups(engine)).find((r) => r.name === 'api_requests')!;
    expect(await build({ ...world.context, clickhouse: older }, rollup, today())).toMatchObject({ kind: 'built' });
    expect(lifetimes.length).toBeGreaterThan(2);
    expect(lifetimes).not.toContain(false);
    expect(await isLifetimeSet()).toBe(false);
  });

  test('before 26.7, a reader that keeps replaced parts holds up no other work, and nothing is built for it again', async () => {
    await world.send('edge_logs', eventsOf(4));
    const engine = world.clickhouse;
    let [isKept, swaps, waits] = [true, 0, 0];
    const older: typeof engine = {
      ...engine,
      version: '25.8.2.1',
      read: async (read) =>
        isKept && read.sql === statements.replacedParts
          ? { body: Buffer.from('{"name":"part"}'), readRows: undefined, readBytes: undefined }
          : await engine.read(read),
      execute: async (statement) => {
        if (statement.sql.includes('REPLACE PARTITION')) swaps++;
        await engine.execute(statement);
      },
    };
    const wait = async (ms: number): Promise<void> => {
      if (++waits > 1000) throw new Error('it waits without end');
      await world.context.wait(ms);
    };
    const context = { ...world.context, wait, clickhouse: older };
    await ask(today(), today(), today() + DAY);
    for (let round = 0; round < 2; round++) {
      expect(await repairOpen(context)).toBe(1);
      expect(await outcomes()).toEqual(['taken']);
      expect(swaps).toBe(1);
    }
    isKept = false;
    expect(await repairOpen(context)).toBe(0);
    expect(await held()).toEqual([4, 4, 4]);
    expect(await sideTablesLeft()).toEqual([]);
  });

  describe('the replay of a dead letter', () => {
    async function replayWithoutView(): Promise<number> {
      const batch = world.announce('edge_logs', eventsOf(4));
      await batch.insert(new Set([batch.last]));
      await world.clickhouse.execute({
        sql: `INSERT INTO batches (topic, partition, first, last, source, stored, dead_lettered, period, min_timestamp) SELECT 'edge_logs', 0, ${batch.first}, ${batch.last}, 'edge_logs', 3, 1, toDateTime(${today()}, 'UTC'), now64(6)`,
      });
      await world.clickhouse.execute({
        sql: `INSERT INTO dead_letter_replays (kafka_topic, kafka_partition, kafka_offset, done, period, timestamp) SELECT 'edge_logs', 0, ${batch.last}, false, toDateTime(${today()}, 'UTC'), now64(6)`,
      });
      await world.clickhouse.execute({ sql: 'DETACH TABLE api_requests_v1_mv' });
      await batch.insert(new Set([batch.first, batch.first + 1, batch.first + 2]));
      await world.clickhouse.execute({ sql: 'ATTACH TABLE api_requests_v1_mv' });
      return batch.last;
    }
    const finish = (offset: number): Promise<void> =>
      world.clickhouse.execute({
        sql: `INSERT INTO dead_letter_replays (kafka_topic, kafka_partition, kafka_offset, done, period, timestamp) SELECT 'edge_logs', 0, ${offset}, true, toDateTime(${today()}, 'UTC'), now64(6)`,
      });

    test('killed between raw and the view holds the build up until it is done, and then counts once', async () => {
      const offset = await replayWithoutView();
      await ask(today(), today(), today() + DAY);
      expect(await repairOpen(world.context)).toBe(1);
      expect(await outcomes()).toEqual(['unfinished']);
      await finish(offset);
      expect(await repairOpen(world.context)).toBe(0);
      expect(await held()).toEqual([4, 4, 4]);
    });

    test('does not hide a row of its batch that raw has lost', async () => {
      const offset = await replayWithoutView();
      await finish(offset);
      await world.clickhouse.execute({
        sql: 'ALTER TABLE edge_logs DELETE WHERE kafka_offset = 0',
        settings: { mutations_sync: 1 },
      });
      await ask(today(), today(), today() + DAY);
      expect(await repairOpen(world.context)).toBe(1);
      expect(await outcomes()).toEqual(['incomplete']);
    });
  });

  test('an insert reads nothing that grows with the number of periods: its views name the raw table alone', async () => {
    const views = await world.select<{ name: string; select: string }>(
      "SELECT name, as_select AS select FROM system.tables WHERE database = currentDatabase() AND engine = 'MaterializedView' AND name NOT LIKE 'canary%'",
    );
    expect(views).toHaveLength(2);
    for (const { name, select } of views) expect(select.match(/\b(?:FROM|JOIN)\b/g), name).toHaveLength(1);
  });
});
