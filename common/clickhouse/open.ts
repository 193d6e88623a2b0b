import { readFileSync } from 'node:fs';
import { hasData, makeDataFolder } from '../config/data-folder.ts';
import type { SettingName, Settings } from '../config/settings.ts';
import { StartError } from '../errors.ts';
import type { Logger } from '../logger.ts';
import type { ClickHouse } from './clickhouse.ts';
import { checkRights, type Service } from './rights.ts';

const OTHER_READERS = 2;

/**
 * Opens the server of CLICKHOUSE_URL, or the nodes of CLICKHOUSE_CLUSTER, and waits for an answer until `signal` fires.
 * Without CLICKHOUSE_URL it opens the embedded engine in DATA_DIR, which must exist unless `create` is true, and must
 * not be another user's. `setting` has the address, if not CLICKHOUSE_URL. Throws StartError, also if our user lacks a
 * right that `service` needs.
 */
export async function openClickHouse(
  settings: Pick<Settings, 'CLICKHOUSE_URL' | 'DATA_DIR' | 'QUERY_CONCURRENCY'> &
    Partial<Pick<Settings, 'CLICKHOUSE_CLUSTER' | 'CLICKHOUSE_SANDBOX_URL' | 'CLICKHOUSE_SSL_CA'>>,
  logger: Logger,
  {
    wait = true,
    create = true,
    signal,
    service,
    setting,
  }: { wait?: boolean; create?: boolean; signal?: AbortSignal; service?: Service; setting?: SettingName } = {},
): Promise<ClickHouse> {
  // beside the callers' queries, keys, audit and commands always have readers
  const readers = settings.QUERY_CONCURRENCY + OTHER_READERS;
  // load only the one that is needed: the other one's packages cost 10 MB at rest
  if (settings.CLICKHOUSE_URL !== undefined) {
    const options = {
      logger,
      wait,
      signal,
      setting,
      readers: Math.max(readers, 16),
      sandboxUrl: settings.CLICKHOUSE_SANDBOX_URL,
      authorities: settings.CLICKHOUSE_SSL_CA === undefined ? undefined : readFileSync(settings.CLICKHOUSE_SSL_CA),
    };
    const urls = settings.CLICKHOUSE_URL.split(',');
    const cluster = settings.CLICKHOUSE_CLUSTER;
    const server =
      cluster === undefined
        ? await (await import('./server/server.ts')).openServer({ ...options, url: urls[0]! })
        : await (await import('./cluster/shards.ts')).openCluster({ ...options, urls, cluster });
    try {
      if (service !== undefined) await checkRights(server, service);
      if (service === 'rollup') await server.cluster?.check();
      return server;
    } catch (error) {
      await server.close();
      throw error;
    }
  }
  if (!hasData(settings.DATA_DIR) && !create)
    throw new StartError(
      `there is no data in ${settings.DATA_DIR}; set DATA_DIR to the folder of the service, or run npm start first`,
    );
  if (!makeDataFolder(settings.DATA_DIR))
    logger.warn({ data_dir: settings.DATA_DIR }, 'data_folder_readable_by_others');
  const { openEmbedded } = await import('./embedded/embedded.ts');
  return await openEmbedded({ dataDir: settings.DATA_DIR, logger, readers });
}
