import { expect, test } from 'vitest';
import type { ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { refusal } from '../../common/clickhouse/errors.ts';
import { createLogger } from '../../common/logger.ts';
import { readSettings } from '../../common/config/settings.ts';
import { createRegistry } from '../../common/metrics.ts';
import { startRollup } from './service.ts';

test('a start on a full disk ends with one line that names the disk, not with a stack', async () => {
  const clickhouse = {
    where: 'embedded',
    read: () => Promise.resolve({ body: Buffer.alloc(0), readRows: undefined, readBytes: undefined }),
    // a table can be created there, but no row inserted
    execute: ({ sql }: { sql: string }) =>
      sql.includes('INSERT') ? Promise.reject(refusal(243, 'Cannot reserve 1.00 MiB')) : Promise.resolve(),
  } as unknown as ClickHouse;
  const started = startRollup({
    clickhouse,
    settings: readSettings({}),
    logger: createLogger('silent'),
    registry: createRegistry(),
  });
  await expect(started).rejects.toMatchObject({
    name: 'StartError',
    message: expect.stringMatching(
      /^ClickHouse \(embedded\) has too little free space on its disk, [^\n]+$/,
    ) as unknown,
  });
});
