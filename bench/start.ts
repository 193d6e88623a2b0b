import { setTimeout as sleep } from 'node:timers/promises';
import { createKafka } from '../common/kafka/client.ts';
import { freePort } from '../common/kafka/local-broker/local-broker.ts';
import { createLogger } from '../common/logger.ts';
import { createTraffic, type TrafficEvent } from '../demo/traffic.ts';
import { temporaryFolder } from '../test/harness/clickhouse.ts';
import { startSluice } from '../test/harness/service.ts';
import { quantile, report } from './report.ts';
import { API_KEY, ownCpuSeconds, residentOf, serviceOf } from './service.ts';

const RATE = 100;
const SECONDS = 60;
const IDLE_SECONDS = 30;
/** After a start V8 compiles, and the engine merges and frees: none of that is rest. */
const SETTLE_SECONDS = 20;
const POLL_MS = 100;
const SEED = 8;

/**
 * What a newcomer meets: `npm start` with its own broker, first and second start; memory at rest; acknowledged produce
 * to visible row at 100 events/s.
 */
export async function benchStart(): Promise<void> {
  const folder = temporaryFolder();
  const port = await freePort();
  const settings = { DATA_DIR: folder.path, KAFKA_PORT: String(port), PORT: '0', API_KEY, LOG_LEVEL: 'warn' };
  const timed = async () => {
    const from = performance.now();
    const sluice = await startSluice(settings);
    return { sluice, seconds: (performance.now() - from) / 1000 };
  };
  const first = await timed();
  await first.sluice.end();
  const second = await timed();
  const { sluice } = second;
  try {
    const service = serviceOf(sluice.pid);
    await sleep(SETTLE_SECONDS * 1000);
    const atRest = await coresUsed(service, () => sleep(IDLE_SECONDS * 1000));
    const idle = residentOf(service);
    // the probes of freshness are requests, and cost as much as the events: measured apart
    const atRate = await coresUsed(service, () => freshness(`127.0.0.1:${port}`, undefined));
    const ages = await freshness(`127.0.0.1:${port}`, (endpoint, params) => sluice.ask(endpoint, params));
    const visible = `acknowledged produce to visible in logs.all at ${RATE} events/s on nine topics, ${ages.length} samples`;
    report({
      bench: 'start',
      seed: SEED,
      measurements: [
        {
          what: 'first start to ready, packages and jars there (broker formatted, tables made)',
          value: first.seconds,
          unit: 's',
        },
        { what: 'second start to ready', value: second.seconds, unit: 's' },
        { what: 'CPU at rest, the one process', value: atRest * 100, unit: '% of a core', goal: { atMost: 3 } },
        { what: 'resident at rest, the one process', value: idle.total, unit: 'MB', goal: { atMost: 400 } },
        { what: 'the same, mapped from files', value: idle.files, unit: 'MB' },
        { what: `CPU at ${RATE} events/s`, value: atRate * 100, unit: '% of a core', goal: { atMost: 30 } },
        { what: `resident after ${2 * SECONDS} s of it`, value: residentOf(service).total, unit: 'MB' },
        ...[0.5, 0.95, 0.99].map((q) => ({
          what: `${visible}, p${q * 100}`,
          value: quantile(ages, q) / 1000,
          unit: 's',
          ...(q === 0.95 && { goal: { atMost: 1 } }),
        })),
      ],
    });
  } finally {
    await sluice.end();
    folder.remove();
  }
}

/** The share of one core that the process, without its children, takes while `work` runs. */
async function coresUsed(pid: number, work: () => Promise<unknown>): Promise<number> {
  const [cpu, from] = [ownCpuSeconds(pid), performance.now()];
  await work();
  return (ownCpuSeconds(pid) - cpu) / ((performance.now() - from) / 1000);
}

/**
 * Milliseconds from the acknowledgement of an edge event to its row in an answer: a probe every second
 * beside the traffic. Without `ask` only the traffic.
 */
async function freshness(
  broker: string,
  ask: ((endpoint: string, params: Record<string, string>) => Promise<Record<string, unknown>[]>) | undefined,
): Promise<number[]> {
  const kafka = createKafka({
    brokers: [broker],
    clientId: 'bench',
    logger: createLogger('error'),
    maxDecompressedBytes: 64 * 1024 * 1024,
  });
  const producer = kafka.producer();
  await producer.connect();
  const traffic = createTraffic({ seed: SEED, projects: 50, functionsPerProject: 8 });
  const send = (events: readonly { topic: string; value: string; key: string | null }[]) =>
    producer.sendBatch({
      topicMessages: events.map(({ topic, key, value }) => ({ topic, messages: [{ key, value }] })),
    });
  const ages: number[] = [];
  const probes: Promise<void>[] = [];
  const until = performance.now() + SECONDS * 1000;
  for (let tick = 0; performance.now() < until; tick++) {
    const started = performance.now();
    const events: TrafficEvent[] = Array.from({ length: RATE / 4 }, () => traffic.next(Date.now() * 1000));
    await send(events.map((e) => ({ topic: e.source, key: e.key, value: e.json })));
    if (ask === undefined || tick % 4 !== 0) {
      await sleep(Math.max(0, 250 - (performance.now() - started)));
      continue;
    }
    // a project of its own for every probe: an answer has just the one row
    const project = `probe-${tick}`;
    await send([{ topic: 'edge_logs', key: project, value: JSON.stringify({ id: project, project, metadata: {} }) }]);
    const acknowledged = performance.now();
    probes.push(
      (async () => {
        while ((await ask('logs.all', { project })).length === 0) await sleep(POLL_MS);
        ages.push(performance.now() - acknowledged);
      })(),
    );
    await sleep(Math.max(0, 250 - (performance.now() - started)));
  }
  await Promise.all(probes);
  await producer.disconnect();
  return ages;
}
