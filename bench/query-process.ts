import { openClickHouse } from '../common/clickhouse/open.ts';
import { readSettings } from '../common/config/settings.ts';
import { createLogger } from '../common/logger.ts';
import { createRegistry } from '../common/metrics.ts';
import { startQuery } from '../services/query/service.ts';

/**
 * The query service on the embedded engine of DATA_DIR, alone in a process: tells its parent the address when it is
 * ready, and ends when the parent lets go.
 */
const settings = readSettings();
const logger = createLogger('error');
const clickhouse = await openClickHouse(settings, logger);
const query = await startQuery({ clickhouse, settings, logger, registry: createRegistry() });
await query.ready;
process.once('disconnect', () => {
  void query
    .stop()
    .then(() => clickhouse.close())
    .then(() => process.exit(0));
});
process.send?.(query.address);
