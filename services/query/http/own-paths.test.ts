import { expect, test } from 'vitest';
import type { ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import { refusal } from '../../../common/clickhouse/errors.ts';
import { readSettings } from '../../../common/config/settings.ts';
import { createLogger } from '../../../common/logger.ts';
import { createRegistry } from '../../../common/metrics.ts';
import { temporaryFolder } from '../../../test/harness/temporary-folder.ts';
import { startQuery } from '../service.ts';

test('probes are not counted among the requests: a probe that says 503 is answered as it should be', async () => {
  const folder = temporaryFolder();
  const away = async (): Promise<never> => {
    throw refusal(210, 'ClickHouse is away');
  };
  const registry = createRegistry();
  const service = await startQuery({
    clickhouse: { ping: away, read: away } as unknown as ClickHouse,
    settings: readSettings({ API_KEY: 'the-key-of-the-tests', PORT: '0', DATA_DIR: folder.path }),
    logger: createLogger('silent'),
    registry,
  });
  try {
    const statuses: number[] = [];
    for (const path of ['/docs', '/nothing', '/health', '/livez', '/readyz', '/metrics'])
      statuses.push((await fetch(service.address + path)).status);
    expect(statuses).toEqual([200, 404, 200, 200, 503, 200]);
    expect((await registry.metrics()).match(/^sluice_query_requests_total\{.*/gm)).toEqual([
      'sluice_query_requests_total{endpoint="other",status="200",cache=""} 1',
      'sluice_query_requests_total{endpoint="other",status="404",cache=""} 1',
    ]);
  } finally {
    await service.stop();
    folder.remove();
  }
});
