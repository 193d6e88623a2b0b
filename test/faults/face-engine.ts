import type { ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { openServer } from '../../common/clickhouse/server/server.ts';
import { readSettings } from '../../common/config/settings.ts';
import { createRegistry } from '../../common/metrics.ts';
import { startRollup } from '../../services/rollup/service.ts';
import { startFace, type Face } from '../harness/clickhouse-face.ts';
import { temporaryFolder, testLogger } from '../harness/clickhouse.ts';

/**
 * A ClickHouse server with the schema, in a process that can be killed and started again on the same port with the same
 * data.
 */
export interface FaceEngine {
  readonly clickhouse: ClickHouse;
  readonly face: Face;
  readonly env: { readonly CLICKHOUSE_URL: string };
  readonly dataDir: string;
  restart(): Promise<void>;
  close(): Promise<void>;
}

/**
 * @param requestTimeoutMs - of the test's own connection; the product's default is a minute
 * @param writers - of it too; the product's default
 */
export async function openFace(requestTimeoutMs = 12_000, writers = 64): Promise<FaceEngine> {
  const folder = temporaryFolder();
  const options = { dataDir: folder.path, password: 'secret' };
  let face = await startFace(options);
  const { url } = face;
  const clickhouse = await openServer({ url, logger: testLogger, requestTimeoutMs, writers });
  const settings = readSettings({});
  const rollup = await startRollup({ clickhouse, settings, logger: testLogger, registry: createRegistry() });
  return {
    clickhouse,
    get face() {
      return face;
    },
    env: { CLICKHOUSE_URL: url },
    dataDir: folder.path,
    restart: async () => {
      face = await startFace({ ...options, port: Number(new URL(url).port) });
    },
    close: async () => {
      await rollup.stop();
      await clickhouse.close();
      await face.stop();
      folder.remove();
    },
  };
}
