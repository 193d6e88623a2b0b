import { openEmbedded } from '../../../common/clickhouse/embedded.ts';
import { runProcess } from '../../../common/lifecycle/run.ts';
import { createLogger } from '../../../common/logger.ts';

/**
 * A service whose engine is in the middle of one row for a minute: neither its time limit nor KILL QUERY is looked at
 * there.
 */
const logger = createLogger('info');
await runProcess(
  () => logger,
  async (add) => {
    const clickhouse = await openEmbedded({ dataDir: process.argv[2] ?? '', logger });
    add({ name: 'clickhouse', stop: () => clickhouse.close() });
    const sql = "SELECT match(materialize(repeat(repeat('ab', 1000), 2000)), {pattern:String})";
    void clickhouse
      .read({ sql, params: { pattern: '.{1000}.{500}\u0001' }, format: 'TSV', settings: { max_execution_time: 1 } })
      .catch(() => undefined);
    setTimeout(() => process.stdout.write('hanging\n'), 1_500);
  },
);
