import { runClusterService } from '../../common/lifecycle/cluster-service.ts';
import { rollupCommand } from './commands/rollup.ts';
import { rollupNote } from './readiness.ts';
import { startRollup } from './service.ts';

let isMigrated = false;

// `npm run rollup`: schema, history, repairs, audit and retention, against a ClickHouse server.
await runClusterService(
  'rollup',
  rollupCommand,
  ['CLICKHOUSE_URL'],
  {
    rollups: async (clickhouse) =>
      clickhouse === undefined || !isMigrated ? 'do not exist yet' : await rollupNote(clickhouse),
  },
  async (context) => {
    const rollup = await startRollup(context);
    isMigrated = true;
    return rollup;
  },
);
