import { openClickHouse } from '../../../common/clickhouse/open.ts';
import { form, type Command } from '../../../common/command/command.ts';
import { moveTables, type Moved } from '../operate/move.ts';

export const moveCommand: Command<Record<string, never>, Moved> = {
  name: 'move',
  needs: 'CLICKHOUSE_URL',
  about: `Set CLICKHOUSE_URL=http://user:password@host:8123/database to the server, or CLICKHOUSE_CLUSTER and CLICKHOUSE_URL to the nodes of a cluster.
Stop npm start, or all services, before, with no batch in flight. Afterwards start the services with these settings and the same Kafka:
they continue where the ledger ends. What was copied stays as it is.`,
  forms: {
    '': form({
      help: 'copies the server of MOVE_FROM_URL, else the embedded ClickHouse of DATA_DIR, every table and the ledger, into the empty database of CLICKHOUSE_URL',
      read: () => ({}),
    }),
  },
  async run({ clickhouse, settings, logger }) {
    const of = { ...settings, CLICKHOUSE_URL: settings.MOVE_FROM_URL, CLICKHOUSE_CLUSTER: undefined };
    const from = await openClickHouse(of, logger, { create: false, wait: false, setting: 'MOVE_FROM_URL' });
    try {
      return await moveTables(from, clickhouse, settings.RAW_RETENTION_DAYS, logger);
    } finally {
      await from.close();
    }
  },
  print: ({ tables, rows }) =>
    `${tables.map((t) => `${t.name}: ${t.rows}`).join('\n')}\n\n${rows} rows in ${tables.length} tables; every offset is accounted for, once\n`,
};
