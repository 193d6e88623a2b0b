import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, test } from 'vitest';
import { endIngestChildren, logged, startIngestChild } from '../faults/ingest-child.ts';
import { waitFor } from '../harness/wait-for.ts';
import { DATABASE, LOAD, PATIENCE_MS, useCluster, type UsedCluster } from './use-cluster.ts';

const FLOW = { edge_logs: 40, function_edge_logs: 24, postgres_logs: 12, auth_logs: 8 } as const;
/** Sources beside those of LOAD. */
const OTHERS = ['function_logs', 'realtime_logs', 'storage_logs', 'postgrest_logs', 'pgbouncer_logs'] as const;
const PARTITIONS = 18;

/**
 * What replicas suffer while batches flow, with one shard and with several: Keeper is killed, the connection between the
 * replicas is cut, an empty replica joins. Each test says in which state its fault struck.
 */
export function testFaults(shards: 1 | 2): void {
  const on = useCluster({ shards, severable: true });
  /** Each first replica, and each second one. */
  const [ones, others] =
    shards === 1
      ? [[0], [1]]
      : [
          [0, 2],
          [1, 3],
        ];
  const onesFirst = shards === 1 ? [0, 1] : [0, 1, 2, 3];
  const othersFirst = shards === 1 ? [1, 0] : [1, 0, 3, 2];

  afterEach(async () => {
    on.cluster.heal();
    await endIngestChildren();
  });

  test('Keeper is killed while an insert runs, and started again', { timeout: 600_000 }, async () => {
    const ingest = await on.ingestFrom(...onesFirst);
    const { fast } = await on.slowInsert();
    await on.cluster.zookeeper.kill();
    for (const node of onesFirst) await waitFor(() => hasLostKeeper(on, node), PATIENCE_MS, 'the session has ended');
    const ledger = await sums(on, onesFirst, 'batches');
    await on.world.produce(LOAD);
    // the insert that the kill cut
    await waitFor(
      () => on.log.some((line) => String(duringOf(line)).includes('insert of batch')),
      PATIENCE_MS,
      'ingest has met a ClickHouse without Keeper in an insert',
    );
    expect(await sums(on, onesFirst, 'batches'), 'nothing is acknowledged without Keeper').toBe(ledger);
    expect(ingest.isJoined()).toBe(true);
    await on.cluster.zookeeper.start();
    await on.world.finished(await on.clientAs('query', onesFirst), PATIENCE_MS);
    await fast();
    await on.expectExact();
    await ingest.stop();
  });

  test(
    'the connection between two replicas is cut while an insert runs: ingest goes on',
    { timeout: 600_000 },
    async () => {
      const ingest = await on.ingestFrom(...onesFirst);
      // ingest may have left the first node, whose connection was reset
      const { node, fast } = await on.slowInsert([0, 1]);
      on.cluster.cut(0, 1);
      await fast();
      const endFlow = flow(on);
      const before = await on.countOn(node, 'batches');
      await waitFor(async () => (await on.countOn(node, 'batches')) > before + 10, PATIENCE_MS, 'ingest goes on');
      await endFlow();
      await on.world.finished(await on.clientAs('query', onesFirst), PATIENCE_MS);
      expect(await missing(on, node, 1 - node)).toBeGreaterThan(0);
      if (shards > 1) {
        await on.cluster.nodes[3]!.server.query(`SYSTEM SYNC REPLICA ${DATABASE}.batches`);
        expect(await missing(on, 2, 3), 'on the other shard').toBe(0);
      }
      on.cluster.heal();
      await on.expectExact();
      await ingest.stop();
    },
  );

  test('a partition changes its owner while each replica has what the other lacks', { timeout: 600_000 }, async () => {
    const second = await on.ingestFrom(...othersFirst);
    const first = startIngestChild({
      env: on.envOf('ingest', onesFirst),
      sessionTimeoutMs: 3_000,
      // stored, and not in the ledger
      at: { step: 'after_insert', match: `^(${OTHERS.join('|')})\\b`, holds: true, times: OTHERS.length },
    });
    await waitFor(
      () => [on.log, logged(first, 'group_joined')].every((lines) => lastJoin(lines) === PARTITIONS / 2),
      PATIENCE_MS,
      'both processes have half of the partitions',
    );
    await on.world.produce(LOAD);
    await on.expectExact();
    for (const one of ones) on.cluster.cut(one, one + 1);
    await on.world.produce({ ...LOAD, ...Object.fromEntries(OTHERS.map((source) => [source, 40])) });
    await first.atStep;
    for (const one of ones)
      await waitFor(
        async () => (await missing(on, one, one + 1)) > 0 && (await missing(on, one + 1, one)) > 0,
        PATIENCE_MS,
        'each of two replicas has batches that the other lacks',
      );
    first.signal('SIGKILL');
    await first.exited;
    const open = await Promise.all(ones.map((one) => notInLedger(on, one)));
    expect(Math.max(...open), 'rows of open batches').toBeGreaterThan(0);
    await waitFor(
      () => on.log.some((line) => duringOf(line) === 'the takeover'),
      PATIENCE_MS,
      'the takeover waits, because no replica has everything',
    );
    expect(on.log).not.toContainEqual(expect.objectContaining({ msg: 'batch_recovered' }));
    on.cluster.heal();
    await on.expectExact();
    const recovered = new Set(on.log.filter(({ msg }) => msg === 'batch_recovered').map(({ topic }) => topic));
    for (const source of OTHERS) expect(recovered).toContain(on.world.topicOf(source));
    await second.stop();
  });

  test('an empty replica takes the place of a lost one while batches flow', { timeout: 600_000 }, async () => {
    const { cluster } = on;
    const joining = others.at(-1)!;
    const left = joining - 1;
    const ingest = await on.ingestFrom(...onesFirst);
    const { fast } = await on.slowInsert();
    await cluster.nodes[joining]!.server.kill();
    await fast();
    const endFlow = flow(on);
    await waitFor(
      async () => {
        await cluster.nodes[left]!.server.query(`SYSTEM DROP REPLICA '${cluster.nodes[joining]!.shard}-r2'`);
        return true;
      },
      PATIENCE_MS,
      'Keeper has ended the session of the lost replica',
    );
    await cluster.restart(joining, { empty: true });
    const { server } = cluster.nodes[joining]!;
    expect(await server.query('SHOW DATABASES')).not.toContain(DATABASE);
    await on.prepare(server);
    const before = await on.countOn(left, 'batches');
    // also where the empty one is the first that is asked
    const toEmpty = await on.clientAs('sluice', onesFirst.toReversed());
    await toEmpty.cluster!.complete();
    await toEmpty.cluster!.distribute?.();
    await waitFor(
      async () => (await on.countOn(joining, 'batches')) > before,
      PATIENCE_MS,
      'the new replica has batches that were written since it joined',
    );
    await endFlow();
    await on.expectExact();
    expect(await tablesOn(on, joining)).toEqual(await tablesOn(on, left));
    await ingest.stop();
  });
}

/** Produces until the returned function is called. */
function flow({ world }: UsedCluster): () => Promise<void> {
  let isEnding = false;
  const flowing = (async () => {
    while (!isEnding) {
      await world.produce(FLOW);
      await sleep(200);
    }
  })();
  return async () => {
    isEnding = true;
    await flowing;
  };
}

const duringOf = (line: Record<string, unknown>): unknown =>
  line['msg'] === 'clickhouse_unavailable' ? line['during'] : undefined;

const lastJoin = (lines: readonly Record<string, unknown>[]): unknown =>
  lines.findLast(({ msg }) => msg === 'group_joined')?.['partitions'];

async function hasLostKeeper({ cluster }: UsedCluster, node: number): Promise<boolean> {
  const alive = await cluster.nodes[node]!.server.query(
    `SELECT count() FROM system.replicas WHERE database = '${DATABASE}' AND NOT is_session_expired`,
  );
  return alive === '0';
}

async function sums(on: UsedCluster, nodes: readonly number[], table: string): Promise<number> {
  const counts = await Promise.all(nodes.map((node) => on.countOn(node, table)));
  return counts.reduce((sum, count) => sum + count, 0);
}

async function batchesOn({ cluster }: UsedCluster, node: number): Promise<string[]> {
  const found = await cluster.nodes[node]!.server.query(
    `SELECT concat(topic, ' ', toString(partition), ' ', toString(first)) FROM ${DATABASE}.batches`,
  );
  return found.split('\n');
}

/** How many finished batches of one node another one lacks. */
async function missing(on: UsedCluster, one: number, other: number): Promise<number> {
  const [held, known] = [await batchesOn(on, one), new Set(await batchesOn(on, other))];
  return held.filter((batch) => !known.has(batch)).length;
}

/** Rows of a node whose batch is in no ledger that it has. */
async function notInLedger({ cluster }: UsedCluster, node: number): Promise<number> {
  const found = await cluster.nodes[node]!.server.query(
    `SELECT count() FROM ${DATABASE}.stored_rows WHERE (kafka_topic, kafka_partition, batch_last) NOT IN (SELECT topic, partition, last FROM ${DATABASE}.batches)`,
  );
  return Number(found);
}

/** Without the side tables of builds, which are of one node. */
async function tablesOn({ cluster }: UsedCluster, node: number): Promise<string[]> {
  const found = await cluster.nodes[node]!.server.query(
    `SELECT database, name FROM system.tables WHERE startsWith(database, '${DATABASE}') AND NOT match(name, '_(build|repair)_') ORDER BY ALL`,
  );
  return found.split('\n');
}
