import { openClickHouse } from '../../../common/clickhouse/open.ts';
import { readSettings } from '../../../common/config/settings.ts';
import { createLogger } from '../../../common/logger.ts';
import { createRegistry } from '../../../common/metrics.ts';
import { startQuery } from '../../../services/query/service.ts';

/**
 * The query service in a process of its own, whose memory is its own. The argument is the moment that it takes for now.
 */
const settings = readSettings();
const logger = createLogger('warn');
const now = Number(process.argv[2]);
const clickhouse = await openClickHouse(settings, logger, { signal: new AbortController().signal });
const service = await startQuery({ clickhouse, settings, logger, registry: createRegistry(), clock: () => now });
await service.ready;
process.stdout.write(`${service.address}\n`);
