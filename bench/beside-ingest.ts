import { createKafka, CompressionTypes } from '../common/kafka/client.ts';
import { freePort, startLocalBroker } from '../common/kafka/local-broker/local-broker.ts';
import { ensureTopics } from '../common/kafka/topics.ts';
import { readSettings } from '../common/config/settings.ts';
import { createLogger } from '../common/logger.ts';
import { createTraffic } from '../demo/traffic.ts';
import { temporaryFolder } from '../test/harness/clickhouse.ts';
import { startSluice } from '../test/harness/service.ts';
import { waitFor } from '../test/harness/wait-for.ts';
import { API_KEY, load } from './cached.ts';
import { PROJECTS, SEED } from './filled.ts';
import { report } from './report.ts';

const BACKLOG = 1_500_000;
const EVENTS_PER_SEND = 5_000;
const SECONDS = 15;
const RATE = 1_000;
const STORED = 'sluice_ingest_events_total';

/** Cached answers of `npm start` while its ingest works off a backlog of edge events as fast as it can: the load generator and the broker are on the same cores. */
export async function benchBesideIngest(): Promise<void> {
  const folder = temporaryFolder();
  const logger = createLogger('error');
  const { CACHE_DIR, JAVA_HOME, KAFKA_MAX_DECOMPRESSED_BYTES, KAFKA_TOPIC_PARTITIONS } = readSettings();
  const broker = await startLocalBroker({ dataDir: folder.path, port: await freePort(), cacheDir: CACHE_DIR, javaHome: JAVA_HOME, logger });
  try {
    const kafka = createKafka({ brokers: broker.brokers, clientId: 'bench', logger, maxDecompressedBytes: KAFKA_MAX_DECOMPRESSED_BYTES });
    await ensureTopics(kafka, ['edge_logs'], KAFKA_TOPIC_PARTITIONS);
    const traffic = createTraffic({ seed: SEED, projects: PROJECTS, functionsPerProject: 1 });
    const producer = kafka.producer();
    await producer.connect();
    let sending: Promise<unknown> = Promise.resolve();
    for (let sent = 0; sent < BACKLOG; sent += EVENTS_PER_SEND) {
      const messages = Array.from({ length: EVENTS_PER_SEND }, () => traffic.next(Date.now() * 1000, 'edge_logs')).map(({ key, json }) => ({ key, value: json }));
      await sending;
      sending = producer.send({ topic: 'edge_logs', messages, compression: CompressionTypes.LZ4 });
    }
    await sending;
    await producer.disconnect();

    const sluice = await startSluice({ DATA_DIR: folder.path, KAFKA_BROKERS: broker.brokers.join(','), PORT: '0', API_KEY, LOG_LEVEL: 'error' });
    try {
      const scrape = async (): Promise<(metric: string) => number> => {
        const text = await (await fetch(`${sluice.address}/metrics`)).text();
        return (metric) => [...text.matchAll(new RegExp(`^${metric}(?:\\{.*\\})? (\\S+)$`, 'gm'))].reduce((total, [, value]) => total + Number(value), 0);
      };
      await waitFor(async () => (await scrape())(STORED) > 0, 30_000, 'ingest has begun');
      const path = `functions.invocation-stats?project=${traffic.population.project(0).ref}`;
      await sluice.ask('functions.invocation-stats', { project: traffic.population.project(0).ref });
      // each scrape begins the lag of the event loop anew
      const [from, before] = [performance.now(), (await scrape())(STORED)];
      const outcome = await load(`${sluice.address}/api/endpoints/${path}`, { connections: 50, seconds: SECONDS, rate: RATE });
      const [seconds, metrics] = [(performance.now() - from) / 1000, await scrape()];
      const after = metrics(STORED);
      if (after >= BACKLOG) throw new Error('the backlog came to its end before the load did');
      report({
        bench: 'beside-ingest', seed: SEED, measurements: [
          { what: 'events stored meanwhile', value: (after - before) / seconds, unit: 'events/s' },
          { what: 'cached answers meanwhile', value: outcome.requests.average, unit: 'requests/s' },
          { what: `cached answers, ${RATE} wanted a second, p50`, value: outcome.latency.p50, unit: 'ms' },
          { what: 'the same, p90', value: outcome.latency.p90, unit: 'ms' },
          { what: 'the same, p99', value: outcome.latency.p99, unit: 'ms', goal: { atMost: 50 } },
          { what: 'the same, the longest', value: outcome.latency.max, unit: 'ms' },
          { what: 'lag of the event loop, p99 (its own work and its wait for a core)', value: metrics('nodejs_eventloop_lag_p99_seconds') * 1000, unit: 'ms' },
        ],
      });
    } finally {
      await sluice.end();
    }
  } finally {
    await broker.stop();
    folder.remove();
  }
}
