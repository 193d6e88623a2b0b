import { expect, test } from 'vitest';
import type { ClickHouse, Statement } from './clickhouse.ts';
import { setFsync } from './fsync.ts';
import { createLogger } from '../logger.ts';

test('the name of a table is no SQL', async () => {
  const names = ['my-table', '.inner_id.8a0d', 'a DELETE WHERE 1 --', 'b`'];
  const executed: string[] = [];
  const engine = {
    read: () => Promise.resolve({ body: Buffer.from(names.map((name) => `${JSON.stringify({ name })}\n`).join('')) }),
    execute: ({ sql }: Statement) => Promise.resolve(void executed.push(sql)),
  } as unknown as ClickHouse;
  await setFsync(engine, createLogger('silent'), true);
  expect(executed.map((sql) => sql.split(' MODIFY SETTING fsync')[0])).toEqual([
    'ALTER TABLE `my-table`',
    'ALTER TABLE `.inner_id.8a0d`',
    'ALTER TABLE `a DELETE WHERE 1 --`',
    'ALTER TABLE `b\\``',
  ]);
});
