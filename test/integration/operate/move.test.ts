import { expect, test } from 'vitest';
import type { Rows } from '../../../common/clickhouse/clickhouse.ts';
import { migrate } from '../../../common/clickhouse/migrations.ts';
import { moveTables } from '../../../services/ingest/copies/move.ts';
import { openTestEmbedded, openTestFace, testLogger } from '../../harness/clickhouse.ts';

// Guarantee: npm run move holds little at a time, wherever in a part its large rows are.

const MIB = 1024 * 1024;

test('large rows that stand together are moved in chunks, and a larger one by itself', async () => {
  const [from, to] = await Promise.all([openTestEmbedded(), openTestFace()]);
  try {
    await migrate(from.clickhouse, testLogger);
    for (const sql of [
      'CREATE TABLE uneven (n UInt64, text String) ENGINE = MergeTree ORDER BY n',
      `INSERT INTO uneven SELECT number, repeat(repeat('x', 1024), multiIf(number = 20060, 40960, number BETWEEN 20000 AND 20059, 2048, 0))
        FROM numbers(20100)`,
      'OPTIMIZE TABLE uneven FINAL',
    ])
      await from.clickhouse.execute({ sql });
    const chunks: number[] = [];
    const insertRows = async (rows: Rows): Promise<void> => {
      if (rows.table === 'uneven') chunks.push([...rows.pieces].reduce((sum, piece) => sum + piece.length, 0));
      await to.clickhouse.insertRows(rows);
    };
    const { tables } = await moveTables(from.clickhouse, { ...to.clickhouse, insertRows }, 90, testLogger);
    expect(tables).toContainEqual({ name: 'uneven', rows: 20_100 });
    // a row: 8 bytes, the length in 4, the text
    expect(chunks.filter((bytes) => bytes > 32 * MIB)).toEqual([40 * MIB + 12]);
    expect(chunks.length).toBeLessThan(60);
    const hash = 'SELECT sum(cityHash64(n, text)) FROM uneven';
    const answers = await Promise.all(
      [from, to].map(({ clickhouse }) => clickhouse.read({ sql: hash, format: 'TabSeparated' })),
    );
    expect(answers[0]!.body).toEqual(answers[1]!.body);
  } finally {
    await from.close();
    await to.close();
  }
});
