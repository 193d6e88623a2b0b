import { waitForSchema } from '../../common/clickhouse/migrations.ts';
import { openClickHouse } from '../../common/clickhouse/open.ts';
import { systemClock } from '../../common/clock.ts';
import { commandRoutes } from '../../common/command/command-routes.ts';
import { kafkaFromSettings } from '../../common/kafka/from-settings.ts';
import { runService } from '../../common/lifecycle/run-service.ts';
import { startConsole } from '../console/console.ts';
import { deadLettersCommand } from '../ingest/commands/dead-letters.ts';
import { startPush } from '../push/service.ts';
import { keysCommand } from './commands/keys.ts';
import { startQuery } from './service.ts';
import { whenOpen } from './when-open.ts';

// `npm run query`: the HTTP service alone, with push if KAFKA_BROKERS is set. It listens at once. Until ClickHouse
// answers, the rollup service has created the schema and the definitions are checked, callers get 503.
await runService('query', ['CLICKHOUSE_URL'], async ({ settings, logger, registry, add, stopping }) => {
  const common = { settings, logger, registry, clock: systemClock };
  const opening = openClickHouse(settings, logger, { signal: stopping, service: 'query' });
  const clickhouse = whenOpen(opening);
  add({ name: 'clickhouse', stop: () => clickhouse.close() });
  const schema = opening
    .then((opened) => waitForSchema(opened, logger, { signal: stopping }))
    .catch((error: unknown) => {
      if (!stopping.aborted) throw error;
      // a signal while waiting is no failure
      return new Promise<void>(() => {});
    });
  schema.catch(() => undefined);

  const push =
    settings.KAFKA_BROKERS === undefined
      ? undefined
      : startPush({
          ...common,
          kafka: Promise.resolve(kafkaFromSettings(settings, settings.KAFKA_BROKERS, 'sluice-push', logger)),
        });
  const page = startConsole({ ...common, clickhouse: whenOpen(schema.then(() => opening)) });
  const query = await startQuery({
    ...common,
    clickhouse,
    schema,
    routes: [
      ...(push?.routes ?? []),
      ...page.routes,
      // those that the console runs
      ...commandRoutes({ clickhouse, settings, logger }, [deadLettersCommand, keysCommand]),
    ],
  });
  add(query);
  add(page);
  if (push !== undefined) add(push);
  const { address, createdKey } = query;
  process.stdout.write(`listening on ${address}\n`);
  const token = page.issueSignInToken();
  if (token !== undefined)
    process.stdout.write(`console: ${address}/#token=${token} (signs in once, within 10 minutes)\n`);
  if (createdKey !== undefined)
    process.stdout.write(`key: ${createdKey} (created now, shown only this once, and stored in the data folder)\n`);
  await opening;
});
