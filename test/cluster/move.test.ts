import { expect, test } from 'vitest';
import { fresh, select, type Statement } from '../../common/clickhouse/clickhouse.ts';
import { moveTables } from '../../services/ingest/operate/move.ts';
import { openTestDatabase, openTestEmbedded, testLogger } from '../harness/clickhouse.ts';
import { migrate } from '../../common/clickhouse/migrations.ts';
import { openTestStore } from '../harness/ingest-store.ts';

// Guarantee: npm run move into a cluster makes replicated tables there, and the account holds on every replica.

test('a move into a cluster leaves every row on both replicas', async () => {
  const [from, to] = [await openTestEmbedded(), await openTestDatabase()];
  try {
    await migrate(from.clickhouse, testLogger);
    const store = openTestStore(from.clickhouse, { source: 'auth_logs' });
    await store.claim(1);
    const now = Date.now();
    for (const first of [0, 30]) {
      const records = Array.from({ length: 30 }, (_, i) => ({
        offset: first + i,
        time: now,
        key: null,
        headers: [],
        // every tenth is a dead letter
        value: Buffer.from(i % 10 === 9 ? '[]' : JSON.stringify({ project: 'p', timestamp: (now - i) * 1000 })),
      }));
      await store.writeBatch({ evaluatedAt: now, records });
    }
    const executed: string[] = [];
    const recorded = {
      ...to.clickhouse,
      execute: async (statement: Statement) => {
        executed.push(statement.sql);
        await to.clickhouse.execute(statement);
      },
    };
    const { tables } = await moveTables(from.clickhouse, recorded, 90, testLogger);
    // parts of a raw table are merged while more are copied: a day of them is too many
    const unmerged = executed.flatMap((sql) => /^SYSTEM STOP MERGES .*`(\w+)`$/.exec(sql)?.[1] ?? []);
    expect(unmerged).toContain('batches');
    expect(unmerged).not.toContain('auth_logs');
    expect(Object.fromEntries(tables.map((t) => [t.name, t.rows]))).toMatchObject({
      auth_logs: 54,
      dead_letters: 6,
      batches: 2,
    });
    for (const clickhouse of [to.clickhouse, to.other!]) {
      const counts = await select(
        fresh(clickhouse, ['auth_logs', 'dead_letters']),
        'SELECT toUInt32((SELECT count() FROM auth_logs)) AS events, toUInt32((SELECT count() FROM dead_letters)) AS letters',
      );
      expect(counts).toEqual([{ events: 54, letters: 6 }]);
    }
    // so that a second shard may be added afterwards
    expect(await select(to.clickhouse, 'SELECT DISTINCT shard FROM partition_owners')).toEqual([
      { shard: to.clickhouse.shard },
    ]);
    const engines = await select<{ engine: string }>(
      to.clickhouse,
      "SELECT DISTINCT engine FROM system.tables WHERE database = currentDatabase() AND endsWith(engine, 'MergeTree')",
    );
    for (const { engine } of engines) expect(engine).toMatch(/^Replicated/);
  } finally {
    await from.close();
    await to.close();
  }
});

test('a move is refused where any node of the cluster has a table', async () => {
  const [from, to] = [await openTestEmbedded(), await openTestDatabase()];
  try {
    await migrate(from.clickhouse, testLogger);
    await to.other!.execute({ sql: 'CREATE TABLE batches (n UInt8) ENGINE = MergeTree ORDER BY n', ofNode: true });
    await expect(moveTables(from.clickhouse, to.clickhouse, 90, testLogger)).rejects.toThrow('needs an empty database');
  } finally {
    await from.close();
    await to.close();
  }
});
