import { waitForSchema } from '../../common/clickhouse/migrations.ts';
import { openClickHouse } from '../../common/clickhouse/open.ts';
import { systemClock } from '../../common/clock.ts';
import { readServiceSettings } from '../../common/config/start.ts';
import { kafkaFromSettings } from '../../common/kafka/from-settings.ts';
import { runProcess } from '../../common/lifecycle/run.ts';
import { createLogger, type Logger } from '../../common/logger.ts';
import { createRegistry } from '../../common/metrics.ts';
import { startConsole } from '../console/console.ts';
import { deadLetterRoutes } from '../ingest/commands/dead-letter-routes.ts';
import { startPush } from '../push/service.ts';
import { startQuery } from './service.ts';
import { whenOpen } from './when-open.ts';

let logger: Logger | undefined;

// `npm run query`: the HTTP service alone, with push if KAFKA_BROKERS is set. It listens at once. Until ClickHouse
// answers, the rollup service has created the schema and the definitions are checked, callers get 503.
await runProcess(
  () => logger,
  async (add, stopping) => {
    const settings = readServiceSettings('query', ['CLICKHOUSE_URL']);
    const log = createLogger(settings.LOG_LEVEL);
    logger = log;
    const opening = openClickHouse(settings, log, { signal: stopping, service: 'query' });
    const clickhouse = whenOpen(opening);
    add({ name: 'clickhouse', stop: () => clickhouse.close() });
    const schema = opening
      .then((opened) => waitForSchema(opened, log, { signal: stopping }))
      .catch((error: unknown) => {
        if (!stopping.aborted) throw error;
        // a signal while waiting is no failure
        return new Promise<void>(() => {});
      });
    schema.catch(() => undefined);

    const registry = createRegistry();
    const push =
      settings.KAFKA_BROKERS === undefined
        ? undefined
        : startPush({
            kafka: Promise.resolve(kafkaFromSettings(settings, settings.KAFKA_BROKERS, 'sluice-push', log)),
            settings,
            logger: log,
            registry,
            clock: systemClock,
          });
    const page = startConsole({
      clickhouse: whenOpen(schema.then(() => opening)),
      settings,
      registry,
      logger: log,
      clock: systemClock,
    });
    const query = await startQuery({
      clickhouse,
      settings,
      logger: log,
      registry,
      schema,
      routes: [...(push?.routes ?? []), ...page.routes, ...deadLetterRoutes({ clickhouse, settings, logger: log })],
      openRoutes: page.openRoutes,
    });
    add(query);
    add(page);
    if (push !== undefined) add(push);
    const { address, createdKey } = query;
    process.stdout.write(`listening on ${address}\n`);
    const token = page.issueSignInToken();
    if (token !== undefined)
      process.stdout.write(`console, signed in, once within 10 minutes: ${address}/#token=${token}\n`);
    if (createdKey !== undefined)
      process.stdout.write(`key: ${createdKey} (created now, shown only this once, and stored in the data folder)\n`);
    await opening;
  },
);
