import { once } from 'node:events';
import { connect } from 'node:net';
import { expect, test } from 'vitest';
import type { ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import { refusal } from '../../../common/clickhouse/errors.ts';
import { readSettings } from '../../../common/config/settings.ts';
import { createLogger } from '../../../common/logger.ts';
import { createRegistry } from '../../../common/metrics.ts';
import { temporaryFolder } from '../../../test/harness/temporary-folder.ts';
import { startQuery } from '../service.ts';

test('probes are not counted among the requests: a probe that says 503 is answered as it should be', async () => {
  const { service, registry, end } = await startWithoutClickHouse();
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
    await end();
  }
});

test('no body is read at a path where nothing is', async () => {
  const { service, end } = await startWithoutClickHouse();
  const { hostname, port } = new URL(service.address);
  const socket = connect(Number(port), hostname);
  try {
    socket.write('POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\nand no more');
    const [answer] = (await once(socket, 'data', { signal: AbortSignal.timeout(5_000) })) as [Buffer];
    expect(answer.toString()).toMatch(/^HTTP\/1\.1 404 [^]*"code":"not_found"/);
  } finally {
    socket.destroy();
    await end();
  }
});

async function startWithoutClickHouse() {
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
  const end = async (): Promise<void> => {
    await service.stop();
    folder.remove();
  };
  return { service, registry, end };
}
