import { expect, test } from 'vitest';
import { fresh } from '../../common/clickhouse/clickhouse.ts';
import { waitFor } from '../harness/wait-for.ts';
import { DATABASE, LOAD, PATIENCE_MS, TABLES, useCluster } from './use-cluster.ts';

// Guarantee: if the answer to the commit of an insert is lost and Keeper stays away, ClickHouse shows the part on that
// replica only, and detaches it after five minutes unless Keeper has it. No ledger counts its rows as stored.

const on = useCluster({ shards: 1, relayed: true });

const queryOn = (node: number, sql: string): Promise<string> => on.cluster.nodes[node]!.server.query(sql);
const unknownPart = (): string | undefined =>
  on.log.map(({ err }) => /Unknown status of part (\S+)/.exec(String(err))?.[1]).find((part) => part !== undefined);

test('rows that Keeper has not heard of are inserted again', { timeout: 600_000 }, async () => {
  const [first, second] = on.cluster.keepers;
  const ingest = await on.ingestFrom(0, 1);
  await on.world.produce(LOAD);
  const reader = fresh(await on.clientAs('query', [1]), TABLES);
  await on.world.finished(reader, PATIENCE_MS);
  const table = `database = '${DATABASE}' AND table = 'edge_logs'`;
  const path = await queryOn(0, `SELECT zookeeper_path FROM system.replicas WHERE ${table}`);

  const cut = first!.cutAt(`${path}/log/log-`, `${path}/blocks/`);
  await on.world.produce({ edge_logs: 200 });
  await cut;
  second!.cut();
  const part = await waitFor(unknownPart, PATIENCE_MS, 'the insert has ended without an answer');
  const ledger = await on.countOn(0, 'batches');
  // now the replica that shows the part is the only one that can be used
  first!.heal();
  await waitFor(
    async () =>
      on.log.some(({ reason }) => reason === 'PART_NOT_IN_KEEPER') || (await on.countOn(0, 'batches')) > ledger,
    PATIENCE_MS,
    'ingest has looked for the rows of its batch',
  );
  const shown = await queryOn(0, `SELECT groupArray(name) FROM system.parts WHERE active AND ${table}`);
  expect(shown).toContain(part);
  const kept = `SELECT groupArray(name) FROM system.zookeeper WHERE path = '${path}/replicas/s1-r1/parts'`;
  expect(JSON.parse((await queryOn(0, kept)).replaceAll("'", '"'))).not.toContain(part);
  expect(on.log).toContainEqual(expect.objectContaining({ reason: 'PART_NOT_IN_KEEPER' }));
  second!.heal();

  await on.world.finished(reader, PATIENCE_MS);
  await on.world.expectExact(reader);
  // detaches the part without waiting five minutes
  await queryOn(0, `SYSTEM RESTART REPLICA ${DATABASE}.edge_logs`);
  await on.expectExact();
  await ingest.stop();
});
