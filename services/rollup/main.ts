import type { ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { runClusterService } from '../../common/lifecycle/cluster-service.ts';
import { rollupCommand } from './commands/rollup.ts';
import { rollupNote } from './readiness.ts';
import { startRollup } from './service.ts';

let migrated: ClickHouse | undefined;

// `npm run rollup`: schema, history, repairs, audit and retention, against a ClickHouse server.
await runClusterService(
  'rollup',
  rollupCommand,
  ['CLICKHOUSE_URL'],
  { rollups: async () => (migrated === undefined ? 'do not exist yet' : await rollupNote(migrated)) },
  async (context) => {
    const rollup = await startRollup(context);
    migrated = context.clickhouse;
    return rollup;
  },
);
