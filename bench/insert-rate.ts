import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { rows } from '../common/clickhouse/clickhouse.ts';
import { openEmbedded } from '../common/clickhouse/embedded/embedded.ts';
import { migrate } from '../common/clickhouse/migrations.ts';
import { readSettings } from '../common/config/settings.ts';
import { createKafka } from '../common/kafka/client.ts';
import { ensureTopics } from '../common/kafka/topics.ts';
import { freePort, startLocalBroker } from '../common/kafka/local-broker/local-broker.ts';
import { createLogger } from '../common/logger.ts';
import { createRegistry } from '../common/metrics.ts';
import { sources } from '../common/sources.ts';
import { createTraffic } from '../demo/traffic.ts';
import { startIngest } from '../services/ingest/service.ts';
import { waitFor } from '../test/harness/wait-for.ts';

/**
 * How many inserts and parts a minute come of many partitions that trickle: 9 topics x 12 partitions, one event a
 * second in each.
 * node bench/insert-rate.ts [--minutes 10] [--partitions 12] [--per-second 108]
 * Prints one line a minute: CPU, inserts, new parts of all tables (blocks written), active parts of the fullest table,
 * oldest event waiting.
 */
const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '10' },
    partitions: { type: 'string', default: '12' },
    'per-second': { type: 'string', default: '108' },
  },
});
const partitions = Number(values.partitions);
const perSecond = Number(values['per-second']);
const logger = createLogger('warn');
const folder = mkdtempSync(join(tmpdir(), 'sluice-bench-'));
const broker = await startLocalBroker({ ...readSettings(), DATA_DIR: folder, KAFKA_PORT: await freePort() }, logger);
const clickhouse = await openEmbedded({ dataDir: folder, logger });
await migrate(clickhouse, logger);
const settings = readSettings({ KAFKA_BROKERS: broker.brokers.join(','), KAFKA_TOPIC_PARTITIONS: String(partitions) });
const kafka = createKafka({
  brokers: broker.brokers,
  clientId: 'bench',
  logger,
  maxDecompressedBytes: settings.KAFKA_MAX_DECOMPRESSED_BYTES,
});
await ensureTopics(
  kafka,
  sources.map((s) => s.name),
  partitions,
);
let inserts = 0;
const counted = {
  ...clickhouse,
  insertRows: (rows: Parameters<typeof clickhouse.insertRows>[0]) => {
    inserts++;
    return clickhouse.insertRows(rows);
  },
};
const ingest = await startIngest({ clickhouse: counted, kafka, settings, logger, registry: createRegistry() });
const producer = kafka.producer();
await producer.connect();
const traffic = createTraffic({ seed: 1, projects: 50, functionsPerProject: 3, disorderMicros: 5e6 });

/** While partitions are taken, more reads may wait than the engine lets. */
async function count(sql: string): Promise<number> {
  return await waitFor(
    async () => rows<{ n: number }>(await clickhouse.read({ sql, format: 'JSONEachRow' }))[0]?.n ?? 0,
    30_000,
    sql,
  );
}
const blocks = (): Promise<number> =>
  count(`SELECT toFloat64(sum(value)) AS n FROM system.events WHERE event = 'MergeTreeDataWriterBlocks'`);
const fullest = (): Promise<number> =>
  count(
    `SELECT toFloat64(max(parts)) AS n FROM (SELECT count() AS parts FROM system.parts WHERE active GROUP BY database, table)`,
  );

function cpuPercent(since: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(since);
  return Math.round((user + system) / 1e6 / 0.6);
}

const TICK_MS = 100;
let sent = 0;
for (let minute = 1; minute <= Number(values.minutes); minute++) {
  const before = { inserts, blocks: await blocks(), cpu: process.cpuUsage() };
  const end = Date.now() + 60_000;
  while (Date.now() < end) {
    const topicMessages = new Map<string, { value: string; partition: number; timestamp: string }[]>();
    for (let i = 0; i < (perSecond * TICK_MS) / 1000; i++, sent++) {
      const { name } = sources[sent % sources.length]!;
      const messages = topicMessages.get(name) ?? [];
      messages.push({
        value: traffic.next(Date.now() * 1000, name).json,
        partition: Math.floor(sent / sources.length) % partitions,
        timestamp: String(Date.now()),
      });
      topicMessages.set(name, messages);
    }
    const next = sleep(TICK_MS);
    await producer.sendBatch({ topicMessages: [...topicMessages].map(([topic, messages]) => ({ topic, messages })) });
    await next;
  }
  process.stdout.write(
    `minute ${minute}: ${inserts - before.inserts} inserts, ${(await blocks()) - before.blocks} parts in all tables, fullest table ${await fullest()} active parts, ${sent} events sent, ${cpuPercent(before.cpu)} % of a core with the producer\n`,
  );
}
await producer.disconnect();
await ingest.stop();
await clickhouse.close();
await broker.stop();
rmSync(folder, { recursive: true, force: true });
