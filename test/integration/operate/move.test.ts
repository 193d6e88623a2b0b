import { expect, test, vi } from 'vitest';
import type { Rows, Statement } from '../../../common/clickhouse/clickhouse.ts';
import { migrate } from '../../../common/clickhouse/migrations.ts';
import type { Logger } from '../../../common/logger.ts';
import { moveTables } from '../../../services/ingest/operate/move.ts';
import { openTestEmbedded, openTestFace, testLogger } from '../../harness/clickhouse.ts';

// Guarantee: npm run move holds little at a time, wherever in a part its large rows are.

const MIB = 1024 * 1024;

test('a move that fails says why, although the old place cannot start its merges again', async () => {
  const [from, to] = await Promise.all([openTestEmbedded(), openTestFace()]);
  try {
    await migrate(from.clickhouse, testLogger);
    const execute = async (statement: Statement): Promise<void> => {
      if (statement.sql.startsWith('SYSTEM START')) throw new Error('no merges');
      await from.clickhouse.execute(statement);
    };
    const create = (): Promise<void> => Promise.reject(new Error('no tables'));
    const warn = vi.fn<Logger['warn']>();
    const logger = { info: () => undefined, warn } as unknown as Logger;
    await expect(
      moveTables({ ...from.clickhouse, execute }, { ...to.clickhouse, execute: create }, 90, logger),
    ).rejects.toThrow('no tables');
    expect(warn).toHaveBeenCalledWith({ table: 'batches', err: new Error('no merges') }, 'merges_not_started');
  } finally {
    await from.close();
    await to.close();
  }
});

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
