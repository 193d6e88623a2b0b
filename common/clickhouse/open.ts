import type { Settings } from '../config/settings.ts';
import type { Logger } from '../logger.ts';
import type { ClickHouse } from './clickhouse.ts';
import { openEmbedded } from './embedded.ts';
import { openServer } from './server.ts';

/** The server of CLICKHOUSE_URL, waited for until `signal` fires, else the embedded engine in DATA_DIR. Throws StartError. */
export async function openClickHouse(settings: Pick<Settings, 'CLICKHOUSE_URL' | 'DATA_DIR'>, logger: Logger, { wait = true, signal }: { wait?: boolean; signal?: AbortSignal } = {}): Promise<ClickHouse> {
  if (settings.CLICKHOUSE_URL !== undefined) return await openServer({ url: settings.CLICKHOUSE_URL, logger, wait, ...(signal === undefined ? {} : { signal }) });
  return await openEmbedded({ dataDir: settings.DATA_DIR, logger });
}
