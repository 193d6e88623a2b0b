import { openEmbedded } from '../../../common/clickhouse/embedded/embedded.ts';
import { openServer } from '../../../common/clickhouse/server/server.ts';
import { runProcess } from '../../../common/lifecycle/run.ts';
import { createLogger } from '../../../common/logger.ts';

/**
 * A service whose engine is in the middle of one row for a minute: neither its time limit nor KILL QUERY is looked at
 * there. With the URL of a server as the second argument, the statement runs there.
 */
const logger = createLogger('info');
await runProcess(
  () => logger,
  async (add) => {
    const [dataDir = '', url] = process.argv.slice(2);
    const clickhouse =
      url === undefined ? await openEmbedded({ dataDir, logger }) : await openServer({ url, logger, wait: false });
    add({ name: 'clickhouse', stop: () => clickhouse.close() });
    const sql = "SELECT match(materialize(repeat(repeat('ab', 1000), 2000)), {pattern:String})";
    void clickhouse
      .read({ sql, params: { pattern: '.{1000}.{500}\u0001' }, format: 'TSV', settings: { max_execution_time: 1 } })
      .catch(() => undefined);
    setTimeout(() => process.stdout.write('hanging\n'), 1_500);
  },
);
