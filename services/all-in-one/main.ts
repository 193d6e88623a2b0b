import { setTimeout as sleep } from 'node:timers/promises';
import { commands } from '../../cli.ts';
import { openClickHouse } from '../../common/clickhouse/open.ts';
import { systemClock } from '../../common/clock.ts';
import { commandRoutes, proofRoute } from '../../common/command/command-routes.ts';
import { hasData, keyFile } from '../../common/config/data-folder.ts';
import { kafkaFromSettings } from '../../common/kafka/from-settings.ts';
import { startLocalBroker, type Broker } from '../../common/kafka/local-broker/local-broker.ts';
import { runService } from '../../common/lifecycle/run-service.ts';
import { shrinkHeap } from '../../common/lifecycle/shrink-heap.ts';
import { startConsole } from '../console/console.ts';
import { consumerCheck, startIngest, type RunningIngest } from '../ingest/service.ts';
import { startPush } from '../push/service.ts';
import { startQuery } from '../query/service.ts';
import { whenOpen } from '../query/when-open.ts';
import { rollupNote } from '../rollup/readiness.ts';
import { startRollup } from '../rollup/service.ts';
import { welcome } from './welcome.ts';

// above the start: what stands below it is never initialized, because runService does not return
const SETTLE_CHECK_MS = 50;
const SETTLE_WAIT_MS = 10_000;
/** The start is over by then, and what it allocated is no longer used. */
const SHRINK_AFTER_MS = 15_000;

// `npm start`: everything in one process, on the embedded engine unless CLICKHOUSE_URL names a server.
await runService('start', [], async ({ settings, logger, registry, add, stopping }) => {
  const common = { settings, logger, registry, clock: systemClock };
  // before the broker writes into the folder of another user
  if (settings.CLICKHOUSE_URL === undefined) hasData(settings.DATA_DIR);
  // the engine and the broker start side by side: together they are most of the time to ready
  const notNeeded = new AbortController();
  const broker: Promise<Broker> =
    settings.KAFKA_BROKERS === undefined
      ? startLocalBroker(settings, logger, { signal: AbortSignal.any([stopping, notNeeded.signal]) })
      : Promise.resolve({ name: 'kafka', brokers: settings.KAFKA_BROKERS, stop: () => Promise.resolve() });
  const connecting = broker.then(({ brokers }) => kafkaFromSettings(settings, brokers, 'sluice', logger));
  connecting.catch(() => {});
  let isBrokerAdded = false;
  add({
    name: 'start of the broker',
    // its process would outlive this one
    stop: async () => {
      notNeeded.abort();
      const started = await broker.catch(() => undefined);
      if (!isBrokerAdded) await started?.stop();
    },
  });
  const clickhouse = await openClickHouse(settings, logger, { signal: stopping });
  add({ name: 'clickhouse', stop: () => clickhouse.close() });
  const schema = startRollup({ ...common, clickhouse });
  schema.catch(() => {});

  let isMigrated = false;
  let ingest: RunningIngest | undefined;
  const push = startPush({ ...common, kafka: connecting });
  const page = startConsole({ ...common, clickhouse: whenOpen(schema.then(() => clickhouse)) });
  const query = await startQuery({
    ...common,
    clickhouse,
    schema,
    checks: {
      consumer: consumerCheck(() => ingest),
      rollups: async () => (isMigrated ? await rollupNote(clickhouse) : 'do not exist yet'),
    },
    routes: [
      ...push.routes,
      ...page.routes,
      ...commandRoutes({ clickhouse, settings, logger }, commands),
      proofRoute({ settings }),
    ],
  });
  add(query);
  add(page);
  const kafkaBroker = await broker;
  add(kafkaBroker);
  isBrokerAdded = true;
  const { brokers } = kafkaBroker;

  add(await schema);
  isMigrated = true;
  // stopped before the broker, which must acknowledge what is in flight
  add(push);
  ingest = await startIngest({ ...common, clickhouse, kafka: await connecting, signal: stopping });
  add(ingest);

  await query.ready;
  // in a terminal the welcome should be the last lines: a first start logs a line for each partition
  if (process.stdout.isTTY) await whenSettled(ingest, stopping);
  process.stdout.write(
    welcome({
      address: query.address,
      signInToken: page.issueSignInToken(),
      createdKey: query.createdKey,
      keyFile: settings.API_KEY === undefined ? keyFile(settings.DATA_DIR) : undefined,
      brokers,
      areBrokersOurs: settings.KAFKA_BROKERS === undefined,
      topics: settings.KAFKA_TOPICS,
    }),
  );
  setTimeout(shrinkHeap, SHRINK_AFTER_MS).unref();
});

/** Resolves when the consumer has joined its group and taken its partitions, the process stops, or after ten seconds. */
async function whenSettled(ingest: RunningIngest, stopping: AbortSignal): Promise<void> {
  const until = performance.now() + SETTLE_WAIT_MS;
  const isSettled = (): boolean => ingest.isJoined() && ingest.taking().length === 0;
  while (!isSettled() && !stopping.aborted && performance.now() < until) await sleep(SETTLE_CHECK_MS);
}
