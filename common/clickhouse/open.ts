import type { Settings } from '../config/settings.ts';
import type { Logger } from '../logger.ts';
import type { ClickHouse } from './clickhouse.ts';
import { openEmbedded } from './embedded.ts';

/** The server of CLICKHOUSE_URL, else the embedded engine in DATA_DIR. Throws StartError. */
export async function openClickHouse(settings: Pick<Settings, 'CLICKHOUSE_URL' | 'DATA_DIR'>, logger: Logger): Promise<ClickHouse> {
  if (settings.CLICKHOUSE_URL !== undefined) throw new Error('server mode follows');
  return await openEmbedded({ dataDir: settings.DATA_DIR, logger });
}
