import { existsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import { readSettings } from '../../../common/config/settings.ts';
import { createLogger } from '../../../common/logger.ts';
import { moveCommand } from './move.ts';

test('a mistyped DATA_DIR is named, not created', async () => {
  const missing = join(tmpdir(), `sluice-test-missing-${process.pid}`);
  const settings = readSettings({ DATA_DIR: missing });
  await expect(
    moveCommand.run({ clickhouse: {} as ClickHouse, settings, logger: createLogger('silent') }, {}),
  ).rejects.toThrow(`there is no data in ${missing}`);
  expect(existsSync(missing)).toBe(false);
});
