import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import { readSettings } from '../../../common/config/settings.ts';
import { createLogger } from '../../../common/logger.ts';
import { moveCommand } from './move.ts';

test.each([
  [0, 'does not answer: ECONNREFUSED'],
  [516, 'refuses the user default or its password; check MOVE_FROM_URL'],
])('a wrong MOVE_FROM_URL is named at once: error %i', async (code, reason) => {
  const server = createServer((_, response) => {
    response.writeHead(403, { 'X-ClickHouse-Exception-Code': code }).end(`Code: ${code}. DB::Exception: no`);
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  if (code === 0) server.close();
  const settings = readSettings({ MOVE_FROM_URL: `http://127.0.0.1:${port}` });
  await expect(
    moveCommand.run({ clickhouse: {} as ClickHouse, settings, logger: createLogger('silent') }, {}),
  ).rejects.toThrow(`ClickHouse at http://127.0.0.1:${port}/default ${reason}`);
  server.close();
});

test('a mistyped DATA_DIR is named, not created', async () => {
  const missing = join(tmpdir(), `sluice-test-missing-${process.pid}`);
  const settings = readSettings({ DATA_DIR: missing });
  await expect(
    moveCommand.run({ clickhouse: {} as ClickHouse, settings, logger: createLogger('silent') }, {}),
  ).rejects.toThrow(`there is no data in ${missing}`);
  expect(existsSync(missing)).toBe(false);
});
