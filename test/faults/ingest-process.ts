import { once } from 'node:events';
import { writeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { select, type ClickHouse, type Reader } from '../../common/clickhouse/clickhouse.ts';
import { openClickHouse } from '../../common/clickhouse/open.ts';
import { readSettings } from '../../common/config/settings.ts';
import {
  createKafka,
  type Consumer,
  type KafkaClient,
  type OffsetsByTopicPartition,
} from '../../common/kafka/client.ts';
import { runProcess } from '../../common/lifecycle/run.ts';
import { createLogger, type Logger } from '../../common/logger.ts';
import { createRegistry } from '../../common/metrics.ts';
import { startIngest } from '../../services/ingest/service.ts';
import { startRollup } from '../../services/rollup/service.ts';
import { startRepairs } from './repairs.ts';
import type { At, FromIngest, IngestProcessOptions, Step, ToIngest } from './ingest-child.ts';
import type { Watched } from './part-watch.ts';

/**
 * The child process of ingest-child.ts: the real ingest service, composed as services/ingest/main.ts and
 * all-in-one/main.ts compose it, with its two outer seams wrapped: the engine and the Kafka client. At the step named
 * by its argument it kills or stops itself.
 */
const { env, at, sessionTimeoutMs, logLevel, look } = JSON.parse(process.argv[2]!) as IngestProcessOptions;
let logger: Logger | undefined;
let remaining = at?.times ?? 1;
let done = false;
let clockAheadMs = 0;
const released = Promise.withResolvers<void>();
process.on('disconnect', () => process.exit(3));
process.on('exit', () => logger?.info({ max_rss_kilobytes: process.resourceUsage().maxRSS }, 'ended'));

await runProcess(
  () => logger,
  async (add, stopping) => {
    const settings = readSettings({ ...env });
    logger = createLogger(logLevel ?? 'info');
    const clickhouse = await openClickHouse(settings, logger, { signal: stopping });
    add({ name: 'clickhouse', stop: () => clickhouse.close() });
    if (look !== undefined) logger.info((await select<object>(clickhouse, look))[0], 'found_at_start');
    // beside a server both run in the test
    if (settings.CLICKHOUSE_URL === undefined) {
      add(await startRollup({ clickhouse, settings, logger, registry: createRegistry() }));
      add(startRepairs({ clickhouse, settings, logger }));
    }
    process.on('message', (message: ToIngest) => {
      if (message.kind === 'read') void answer(clickhouse, message);
      else if (message.kind === 'release') released.resolve();
      else clockAheadMs = message.aheadMs;
    });
    const kafka = createKafka({
      brokers: settings.KAFKA_BROKERS!,
      clientId: 'sluice-ingest',
      logger,
      maxDecompressedBytes: settings.KAFKA_MAX_DECOMPRESSED_BYTES,
    });
    const registry = createRegistry();
    add(
      await startIngest({
        clickhouse: withSteps(clickhouse),
        kafka: withCommitSteps(kafka),
        settings,
        logger,
        registry,
        sessionTimeoutMs,
        clock: () => Date.now() + clockAheadMs,
      }),
    );
    await send({ kind: 'running' });
  },
);

async function answer(clickhouse: ClickHouse, { id, read }: ToIngest & { kind: 'read' }): Promise<void> {
  try {
    const { body } = await clickhouse.read(read);
    await send({ kind: 'answer', id, body: body.toString('utf8') });
  } catch (error) {
    await send({ kind: 'answer', id, error: String(error) });
  }
}

function send(message: FromIngest): Promise<void> {
  return new Promise((resolve) => {
    process.send?.(message, () => resolve());
  });
}

function isMeant(step: Step, about: string): boolean {
  return at?.step === step && new RegExp(at.match ?? '').test(about);
}

/** `about`: what the step is about (At.match). */
async function reached(step: Step, about: string): Promise<void> {
  if (at === undefined || !isMeant(step, about) || at.whenPartOf !== undefined) return;
  const isNow = !done && --remaining <= 0;
  if (isNow) {
    done = true;
    logStrike(step, about);
    // there and then: while a message is sent, the engine may go on
    if (isKilledAtOnce(at)) signalSelf(at);
    await send({ kind: 'at_step' });
  }
  if (at.holds === true) return released.promise;
  if (!isNow) return;
  if (at.holdMs !== undefined) await sleep(at.holdMs);
  else if (at.delayMs === undefined) signalSelf(at);
  else setTimeout(signalSelf, at.delayMs, at);
}

/** Written at once: the process may not live long enough for anything else. */
function logStrike(step: Step, about: string): void {
  writeSync(2, `${JSON.stringify({ msg: 'struck', step, about })}\n`);
}

/** Has a thread kill this process in the insert that comes next, when a part of the table is stored. */
async function killWhenPart(clickhouse: Reader, table: string, about: string): Promise<void> {
  done = true;
  const sql =
    'SELECT data_paths[1] AS folder FROM system.tables WHERE database = currentDatabase() AND name = {table:String}';
  const [found] = await select<{ folder: string }>(clickhouse, sql, { table });
  const workerData: Watched = { folder: found!.folder, pid: process.pid };
  const thread = new Worker(new URL('part-watch.ts', import.meta.url), { workerData });
  await once(thread, 'message');
  logStrike('in_insert', about);
}

function isKilledAtOnce({ signal, delayMs, holdMs, holds }: At): boolean {
  return [signal, delayMs, holdMs, holds].every((other) => other === undefined);
}

function signalSelf({ signal = 'SIGKILL' }: At): void {
  process.kill(process.pid, signal);
}

function withSteps<C extends ClickHouse>(clickhouse: C): C {
  return {
    ...clickhouse,
    ...(clickhouse.shards !== undefined && { shards: clickhouse.shards.map(withSteps) }),
    // the ledger's rows share inserts: their step is about all of them; a claim is no part of a batch
    insertRows: async (rows) => {
      if (rows.table === 'partition_owners') return clickhouse.insertRows(rows);
      const isLedger = rows.table === 'batches';
      const table = (rows.queryIds?.length ?? 0) > 1 ? `${rows.table} of partitions` : rows.table;
      const about = isLedger ? table : `${table} ${String(rows.settings?.['insert_deduplication_token'])}`;
      if (!isLedger) await reached('before_insert', about);
      if (at?.whenPartOf !== undefined && !done && isMeant('in_insert', about))
        await killWhenPart(clickhouse, at.whenPartOf, about);
      // the batch does not reach the ledger, however late the thread strikes
      if (isLedger && at?.whenPartOf !== undefined && done) return new Promise<void>(() => {});
      const inserting = clickhouse.insertRows(rows);
      await Promise.all([inserting, reached(isLedger ? 'in_ledger' : 'in_insert', about)]);
      await reached(isLedger ? 'after_ledger' : 'after_insert', about);
    },
  };
}

function withCommitSteps(kafka: KafkaClient): KafkaClient {
  return { ...kafka, consumer: (config) => wrapped(kafka.consumer(config)) };
}

function wrapped(consumer: Consumer): Consumer {
  return {
    ...consumer,
    run: (config) =>
      consumer.run({
        ...config,
        eachBatch: (payload) =>
          config!.eachBatch!({
            ...payload,
            commitOffsetsIfNecessary: async (offsets?: OffsetsByTopicPartition) => {
              const {
                topic,
                partitions: [commit],
              } = offsets!.topics[0]!;
              const metadata = (commit as { metadata?: string }).metadata ?? '';
              const intent = metadata.startsWith('b:');
              await reached(intent ? 'before_intent' : 'before_commit', topic);
              await payload.commitOffsetsIfNecessary(offsets);
              await reached(intent ? 'after_intent' : 'after_commit', topic);
            },
          }),
      }),
  };
}
