import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { ClickHouseError } from '../../../common/clickhouse/errors.ts';
import type { Admin, Consumer, EachBatchPayload } from '../../../common/kafka/client.ts';
import { keyOf } from '../../../common/kafka/partition.ts';
import { createLogger } from '../../../common/logger.ts';
import { createRegistry } from '../../../common/metrics.ts';
import type { BadShare, LedgerEnd, Store } from '../delivery/ports.ts';
import { createIngestMetrics, type IngestMetrics } from '../metrics.ts';
import { Assignment } from './assignment.ts';
import { createMembership, type Membership } from './membership.ts';

const TOPIC = 'edge_logs';
const OWNER = { group: 'ours', epoch: 1, former: undefined, isSettled: true };
const RULES = {
  version: 1,
  evaluatedAt: 0,
  retentionDays: 90,
  maxEventBytes: 1_000,
  rawAvro: false,
  schemaIds: [],
  period: 0,
};

interface World {
  readonly assignment: Assignment;
  readonly membership: Membership;
  readonly metrics: IngestMetrics;
  /** what the client was told, and what lanes commit, store and log, in order */
  readonly did: string[];
  /** lets the lane that waits for a permit go on */
  permit: () => void;
  /**
   * Hands over records of a partition from this offset on, or an answer without a record that covers as many offsets.
   * Returns what was acknowledged.
   */
  readonly receive: (at: number, count: number, areEmpty?: 'empty', partition?: number) => string | undefined;
}

/**
 * Partitions of a topic, by default one, of ten records each, assigned to this process. `inserting`: an insert;
 * `recording`: a ledger row; `looking`: at pauses; `end`: of the ledger, by default nobody ever took it; `high`: the
 * offset after the last one in Kafka.
 */
function assign({
  inserting = Promise.resolve(),
  recording = Promise.resolve(),
  looking = Promise.resolve(undefined),
  end,
  high = () => '10',
  partitions = 1,
}: {
  inserting?: Promise<void>;
  recording?: Promise<void>;
  looking?: ReturnType<BadShare['paused']>;
  end?: LedgerEnd | (() => Promise<LedgerEnd | undefined>);
  high?: () => string;
  partitions?: number;
} = {}): World {
  const all = Array.from({ length: partitions }, (_, partition) => partition);
  const did: string[] = [];
  const metrics = createIngestMetrics(createRegistry());
  const membership = createMembership(() => 0, 10_000);
  const wanted = Promise.withResolvers<() => void>();
  const ledgerEnd = typeof end === 'function' ? end : async () => end;
  const store = {
    endRunning: async () => {},
    register: async () => ({ period: 0, owner: OWNER }),
    ledgerEnd,
    marks: async (_, before) => {
      const record = (await ledgerEnd())?.record;
      return record !== undefined && record.offset < before ? [record] : [];
    },
    compare: async () => [],
    orphans: async () => [],
    rulesFor: async () => RULES,
    insert: async ({ first, last }) => {
      did.push(`insert ${first}-${last}`);
      await inserting;
      return { rows: last - first + 1, deadLetters: 0, minTimestamp: undefined };
    },
    writeLedger: async ({ first, last }) => {
      did.push(`record ${first}-${last}`);
      await recording;
    },
  } satisfies Partial<Store> as Partial<Store> as Store;
  const assignment = new Assignment(
    {
      groupId: 'ours',
      batchMaxBytes: 1_000_000,
      mayShareInserts: false,
      shardOf: () => undefined,
      createStore: () => store,
      createBadShare: () => ({ paused: () => looking, add: () => {}, pauses: async () => false }),
      logger: createLogger('debug', {
        write: (line) => {
          const { msg } = JSON.parse(line) as { msg: string };
          if (msg === 'lane_over' || msg.startsWith('inserts_')) did.push(msg);
        },
      }),
      metrics,
      clock: Date.now,
    },
    {
      consumer: {
        seek: ({ offset }: { offset: string }) => did.push(`seek ${offset}`),
        pause: () => did.push('pause'),
        resume: () => did.push('resume'),
      } as Partial<Consumer> as Consumer,
      admin: {
        fetchOffsets: async () => [],
        fetchTopicOffsets: async () => all.map((partition) => ({ partition, offset: '10', low: '0', high: high() })),
      } as Partial<Admin> as Admin,
      membership,
      committer: {
        fetched: () => {},
        crashed: () => {},
        heartbeat: () => {},
        commit: async (_place, _epoch, offset, metadata) => {
          did.push(`commit ${offset} ${metadata.slice(0, 1)}`);
          return true;
        },
      },
      permit: () => wanted.promise,
      fail: (error) => {
        did.push(String(error));
      },
    },
  );
  membership.won(all.map((partition) => keyOf(TOPIC, partition)));
  for (const partition of all) assignment.take(TOPIC, partition);
  return {
    assignment,
    membership,
    metrics,
    did,
    permit: () => wanted.resolve(() => {}),
    receive(at, count, areEmpty, partition = 0) {
      let resolved: string | undefined;
      const records = Array.from({ length: areEmpty ? 0 : count }, (_, i) => ({
        offset: at + i,
        time: 0,
        key: null,
        value: Buffer.from('{}'),
        headers: [],
        bytes: 150,
      }));
      assignment.receive({
        batch: {
          topic: TOPIC,
          partition,
          messages: [{ records, stableEnd: 10, free: () => {} }],
          fetchedOffset: String(at),
          lastOffset: () => String(at + count - 1),
        },
        resolveOffset: (offset: string) => (resolved = offset),
      } as unknown as EachBatchPayload);
      return resolved;
    },
  };
}

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** More than a batch waits for anything. */
const pass = (): Promise<unknown> => vi.advanceTimersByTimeAsync(15_000);

test('a partition is fetched when its lane knows where it goes on, and from there', async () => {
  const { did } = assign();
  expect(did).toEqual(['pause']);
  await vi.advanceTimersByTimeAsync(0);
  expect(did).toEqual(['pause', 'seek 0', 'resume']);
});

test('a fetch is acknowledged to the client if its lane takes it; else the partition is fetched no more', async () => {
  const { did, receive } = assign();
  await vi.advanceTimersByTimeAsync(0);
  expect(receive(0, 3)).toBe('2');
  // of before the last rejoin
  expect(receive(7, 1)).toBeUndefined();
  expect(did.at(-1)).toBe('pause');
});

test('a batch is announced, inserted and recorded, and the end committed when nothing follows', async () => {
  const { did, receive, permit } = assign();
  await vi.advanceTimersByTimeAsync(0);
  receive(0, 10);
  permit();
  await pass();
  expect(did.slice(3)).toEqual(['commit 0 b', 'insert 0-9', 'record 0-9', 'commit 10 e']);
});

test('a lane that lost its partition while it waited for a permit announces and writes nothing', async () => {
  const { assignment, membership, did, receive, permit } = assign();
  await vi.advanceTimersByTimeAsync(0);
  receive(0, 10);
  await pass();
  assignment.endAll();
  expect(membership.joined).toBe(false);
  expect(receive(10, 1)).toBeUndefined();
  permit();
  await pass();
  expect(did.slice(3)).toEqual(['lane_over']);
});

test('a process that stops takes nothing more, and waits for the batch in flight', async () => {
  const inserting = Promise.withResolvers<void>();
  const { assignment, did, receive, permit } = assign({ inserting: inserting.promise });
  await vi.advanceTimersByTimeAsync(0);
  receive(0, 5);
  permit();
  await pass();
  let isDrained = false;
  const draining = assignment.drain().then(() => (isDrained = true));
  expect(receive(5, 5)).toBeUndefined();
  await pass();
  expect(isDrained).toBe(false);
  inserting.resolve();
  await pass();
  await draining;
  expect(did.filter((d) => d !== 'pause').slice(2)).toEqual([
    'commit 0 b',
    'insert 0-4',
    'record 0-4',
    'commit 5 e',
    'lane_over',
  ]);
});

/** of a log that has another record there */
const END: LedgerEnd = {
  incarnation: 0,
  last: 4,
  period: 0,
  group: 'ours',
  record: { offset: 4, time: 0, checksum: 0 },
  isClosed: false,
};

test('a comparison goes on at once behind offsets without a record; between its steps nothing is fetched', async () => {
  const { did, receive } = assign({ end: END });
  await vi.advanceTimersByTimeAsync(0);
  expect(did.splice(0)).toEqual(['pause', 'seek 4', 'resume']);
  const afterSkip = async (from: number): Promise<string[]> => {
    receive(from, 10 - from, 'empty');
    await vi.advanceTimersByTimeAsync(0);
    return did.splice(0);
  };
  expect(await afterSkip(4)).toEqual(['pause', 'seek 4', 'resume']);
  expect(await afterSkip(4)).toEqual(['pause', 'seek 4', 'resume']);
  expect(await afterSkip(4)).toEqual(['pause', 'seek 0', 'resume']);
  expect(await afterSkip(0)).toEqual(['pause', 'seek 5', 'resume']);
});

test('nor is anything fetched after records that a comparison asked for', async () => {
  const { did, metrics, receive } = assign({ end: END });
  await vi.advanceTimersByTimeAsync(0);
  metrics.lag.reset();
  expect(receive(4, 3)).toBeUndefined();
  await vi.advanceTimersByTimeAsync(0);
  expect(did.splice(0)).toEqual(['pause', 'seek 4', 'resume', 'pause', 'seek 4', 'resume']);
  expect(receive(4, 3)).toBe('6');
  expect(did).toEqual(['pause']);
  // the lag is known when the lane is
  expect(await valuesOf(metrics.lag)).toEqual([]);
});

const valuesOf = async (metric: { get(): Promise<{ values: { value: number }[] }> }): Promise<number[]> =>
  (await metric.get()).values.map(({ value }) => value);

test('a partition has a position and a lag from when it is taken until it is lost', async () => {
  const { assignment, metrics } = assign({ end: END });
  expect(await valuesOf(metrics.position)).toEqual([]);
  await vi.advanceTimersByTimeAsync(0);
  expect([await valuesOf(metrics.position), await valuesOf(metrics.lag)]).toEqual([[5], [5]]);
  assignment.endAll();
  expect([await valuesOf(metrics.position), await valuesOf(metrics.lag)]).toEqual([[], []]);
});

test('a partition that is paused before it was taken has neither, instead of zeros', async () => {
  const { metrics } = assign({ end: END, looking: Promise.resolve({ leftMs: 60_000 }) });
  await pass();
  expect(await valuesOf(metrics.paused)).toEqual([1]);
  expect([await valuesOf(metrics.position), await valuesOf(metrics.lag)]).toEqual([[], []]);
});

test('a partition that was never fetched has a lag too, which stays until it is measured again', async () => {
  let high = '0';
  const hanging = new Promise<never>(() => {});
  const { assignment, metrics, receive, permit } = assign({ inserting: hanging, high: () => high, partitions: 3 });
  permit();
  await vi.advanceTimersByTimeAsync(0);
  receive(0, 10);
  await pass();
  // one fetch of a topic that is stuck; the third partition has to wait
  receive(0, 10, undefined, 1);
  high = '5000';
  await assignment.measureUnfetched();
  assignment.arrange();
  await pass();
  expect(await valuesOf(metrics.lag)).toEqual([5_000, 10, 5_000]);
});

test('the lag grows while an insert hangs and nothing is fetched', async () => {
  let high = '10';
  const hanging = new Promise<never>(() => {});
  const { assignment, metrics, receive, permit } = assign({ inserting: hanging, high: () => high });
  await vi.advanceTimersByTimeAsync(0);
  receive(0, 10);
  permit();
  await pass();
  assignment.arrange();
  high = '5000';
  await pass();
  await assignment.measureUnfetched();
  expect([await valuesOf(metrics.position), await valuesOf(metrics.lag)]).toEqual([[0], [5_000]]);
});

test('a hanging insert is not said to be resumed because a rebalance replaced its lane', async () => {
  const hanging = Promise.withResolvers<void>();
  const { assignment, membership, did, receive, permit } = assign({ inserting: hanging.promise });
  const said = (): string[] => did.filter((d) => d.startsWith('inserts_'));
  permit();
  await vi.advanceTimersByTimeAsync(0);
  receive(0, 5);
  await pass();
  assignment.arrange();
  expect(said()).toEqual(['inserts_stuck']);
  assignment.endAll();
  assignment.arrange();
  membership.won([keyOf(TOPIC, 0)]);
  assignment.take(TOPIC, 0);
  await vi.advanceTimersByTimeAsync(0);
  assignment.arrange();
  expect(said()).toEqual(['inserts_stuck']);
  hanging.resolve();
  receive(0, 5);
  await pass();
  assignment.arrange();
  expect(said()).toEqual(['inserts_stuck', 'inserts_resumed']);
});

test('of a process that must end, the partitions with a batch in flight are named', async () => {
  const { assignment, receive, permit } = assign({ inserting: new Promise(() => {}), partitions: 3 });
  expect(assignment.unfinished()).toHaveLength(3);
  permit();
  await vi.advanceTimersByTimeAsync(0);
  receive(0, 5, undefined, 1);
  await pass();
  expect(assignment.unfinished()).toEqual(['edge_logs 1']);
});

test('a ledger row that arrives after a partition is lost brings back neither', async () => {
  const recording = Promise.withResolvers<void>();
  const { assignment, metrics, did, permit, receive } = assign({ recording: recording.promise });
  await vi.advanceTimersByTimeAsync(0);
  receive(0, 10);
  permit();
  await vi.advanceTimersByTimeAsync(10_000);
  expect(did).toContain('record 0-9');
  assignment.endAll();
  recording.resolve();
  await vi.advanceTimersByTimeAsync(10_000);
  expect(did).toContain('lane_over');
  expect([await valuesOf(metrics.position), await valuesOf(metrics.lag)]).toEqual([[], []]);
});

test('a look at pauses that ends after a partition is lost brings back no pause', async () => {
  const looking = Promise.withResolvers<{ readonly leftMs: number }>();
  const { assignment, metrics, did } = assign({ looking: looking.promise });
  await vi.advanceTimersByTimeAsync(0);
  assignment.endAll();
  looking.resolve({ leftMs: 60_000 });
  await pass();
  expect(did).toContain('lane_over');
  expect(await valuesOf(metrics.paused)).toEqual([]);
});

test('a partition that cannot be taken for a minute is named, until it is taken or lost', async () => {
  let isAway = true;
  const refused = { code: 241, codeName: 'MEMORY_LIMIT_EXCEEDED', kind: 'retry', outcome: 'not_written' } as const;
  const { assignment, metrics } = assign({
    end: async () => {
      if (isAway) throw new ClickHouseError('no memory', refused);
      return END;
    },
  });
  const after = async (ms: number): Promise<readonly unknown[]> => {
    await vi.advanceTimersByTimeAsync(ms);
    assignment.arrange();
    return [assignment.untaken(), await valuesOf(metrics.untaken)];
  };
  expect(await after(59_000)).toEqual([[], []]);
  expect(await after(2_000)).toEqual([['edge_logs 0'], [1]]);
  isAway = false;
  expect(await after(5_000)).toEqual([[], [0]]);
  // a partition that is taken has been for long when it must be taken again
  expect(await after(600_000)).toEqual([[], [0]]);
  assignment.endAll();
  expect(await valuesOf(metrics.untaken)).toEqual([]);
});

test('offsets without a record at the end of the log are no lag', async () => {
  const { metrics, permit, receive } = assign();
  await vi.advanceTimersByTimeAsync(0);
  expect(await valuesOf(metrics.lag)).toEqual([10]);
  expect(receive(0, 4, 'empty')).toBe('3');
  expect(await valuesOf(metrics.lag)).toEqual([6]);
  receive(4, 2);
  receive(6, 4, 'empty');
  expect(await valuesOf(metrics.lag)).toEqual([10]);
  permit();
  await pass();
  expect(await valuesOf(metrics.lag)).toEqual([0]);
});

test('an answer without a record from before a rejoin moves no partition on', async () => {
  const { did, permit, receive } = assign();
  permit();
  await vi.advanceTimersByTimeAsync(0);
  receive(0, 2);
  // when more had been read: the offsets from 2 on are still to come
  expect(receive(5, 2, 'empty')).toBeUndefined();
  await pass();
  expect(receive(7, 3)).toBeUndefined();
  expect(did.filter((step) => step.startsWith('insert'))).not.toContain('insert 0-9');
});

test('partitions without traffic delay nobody, also after the wall clock was set back', async () => {
  const partitions = 60;
  const { did, permit, receive } = assign({ partitions });
  permit();
  await vi.advanceTimersByTimeAsync(0);
  for (let partition = 0; partition < partitions; partition++) receive(0, 5, undefined, partition);
  vi.setSystemTime(Date.now() - 3_600_000);
  await pass();
  did.splice(0);
  receive(5, 5);
  // the tick of one partition; that of sixty is two seconds
  await vi.advanceTimersByTimeAsync(250);
  expect(did).toContain('insert 5-9');
});

test('a process that lost its partitions says nothing of their freshness', async () => {
  const { assignment, metrics } = assign();
  metrics.freshness.set({ source: 'edge_logs' }, 90);
  assignment.endAll();
  expect(await valuesOf(metrics.freshness)).toEqual([]);
  // by an insert in flight
  metrics.freshness.set({ source: 'edge_logs' }, 90);
  await vi.advanceTimersByTimeAsync(0);
  expect(await valuesOf(metrics.freshness)).toEqual([]);
});
