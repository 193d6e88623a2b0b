import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { select, type ClickHouse } from '../common/clickhouse/clickhouse.ts';
import { migrate } from '../common/clickhouse/migrations.ts';
import { openServer } from '../common/clickhouse/server/server.ts';
import { freePort } from '../common/kafka/local-broker/local-broker.ts';
import { createLogger } from '../common/logger.ts';
import { reconcile } from '../services/ingest/operate/reconcile.ts';
import { startServer, type TestServer } from '../test/harness/clickhouse-server.ts';
import { endAll, startScript } from '../test/harness/service.ts';
import { waitFor } from '../test/harness/wait-for.ts';
import {
  openProducing,
  produceBacklog,
  startBenchBroker,
  topicOf,
  topicsOf,
  type Backlog,
  type BenchBroker,
} from './backlog.ts';
import { SEED } from './filled.ts';
import { ofRuns, quantile, readOptions, reconciled, report, type Measurement } from './report.ts';
import { cpuSeconds, ownCpuSeconds, scrape, serviceOf } from './service.ts';

/** Of the topic with traffic: as many for each of 1, 2 and 3 processes. */
const PARTITIONS = 6;
/** Of each of the other eight topics, which have no traffic. */
const IDLE_PARTITIONS = 3;
const ALL_PARTITIONS = PARTITIONS + 8 * IDLE_PARTITIONS;
const PROCESSES = [1, 2, 3] as const;
/** Of the backlog: what the processes start, compile and divide among themselves before CPU counts. */
const WARM_UP = 0.4;
const TICK_MS = 100;
/** Before a rebalance, and of what counts as its time after all partitions have an owner again. */
const QUIET_MS = 4_000;
const AFTER_MS = 3_000;
const DEADLINE_MS = 300_000;

/** A database and a consumer group of their own: everything in Kafka is new to them. */
interface Target {
  readonly clickhouse: ClickHouse;
  readonly env: Readonly<Record<string, string>>;
  readonly topic: string;
}

interface Ingest {
  readonly pid: number;
  partitions(): Promise<number>;
  /** SIGTERM */
  end(): Promise<void>;
}

interface Cost {
  readonly perSecond: number;
  /** microseconds of CPU an event */
  readonly ingest: number;
  readonly server: number;
}

/**
 * npm run bench -- scale-out [--events 240000] [--rounds 3] [--rebalances 20] [--rate 1000]: what 1, 2 and 3 ingest
 * processes cost over the same partitions, and how long delivery pauses when one joins or leaves under load.
 */
export async function benchScaleOut(): Promise<void> {
  const options = readOptions({ events: '240000', rounds: '3', rebalances: '20', rate: '1000' });
  const broker = await startBenchBroker();
  const server = await startServer({ dataDir: broker.folder });
  try {
    const costs = await costsInTurn(broker, server, Number(options.events), Number(options.rounds));
    const { engine, measurements } = await rebalances(broker, server, Number(options.rebalances), Number(options.rate));
    report({
      bench: 'scale-out',
      seed: SEED,
      engine,
      measurements: [...PROCESSES.flatMap((n) => costMeasurements(n, costs)), ...measurements],
    });
  } finally {
    await endAll();
    await server.kill();
    await broker.stop();
  }
}

const total = ({ ingest, server }: Cost): number => ingest + server;

function costMeasurements(processes: number, costs: ReadonlyMap<number, readonly Cost[]>): Measurement[] {
  const [own, one] = [costs.get(processes)!, costs.get(1)!];
  const what = processes === 1 ? '1 process' : `${processes} processes`;
  return [
    { what: `${what}: events`, unit: '/s', ...ofRuns(own.map((cost) => cost.perSecond)) },
    { what: `${what}: CPU an event, ingest and server`, unit: 'us', ...ofRuns(own.map(total)) },
    { what: `${what}: the same, ingest alone`, unit: 'us', ...ofRuns(own.map((cost) => cost.ingest)) },
    ...(processes === 1
      ? []
      : [
          {
            what: `${what} to 1: CPU an event`,
            unit: 'times',
            ...ofRuns(own.map((cost, round) => total(cost) / total(one[round]!))),
            goal: { atMost: 1.1 },
          },
        ]),
  ];
}

async function openTarget(broker: BenchBroker, server: TestServer, backlog: Backlog): Promise<Target> {
  const name = `bench_${randomUUID().slice(0, 8)}`;
  await server.query(`CREATE DATABASE ${name}`);
  const logger = createLogger('error');
  const url = `${server.url}/${name}`;
  const clickhouse = await openServer({ url, logger });
  await migrate(clickhouse, logger);
  return {
    clickhouse,
    topic: topicOf(backlog, 'edge_logs'),
    env: {
      KAFKA_BROKERS: broker.brokers.join(','),
      KAFKA_TOPICS: topicsOf(backlog),
      KAFKA_TOPIC_PARTITIONS: String(IDLE_PARTITIONS),
      KAFKA_GROUP_ID: name,
      CLICKHOUSE_URL: url,
      LOG_LEVEL: 'error',
    },
  };
}

/** `npm run ingest` */
async function startIngest({ env }: Target): Promise<Ingest> {
  const port = await freePort();
  const service = startScript('ingest', { ...env, METRICS_PORT: String(port) });
  const metrics = `http://127.0.0.1:${port}`;
  await waitFor(async () => (await scrape(metrics))('sluice_ingest_partitions') >= 0, DEADLINE_MS, 'ingest runs');
  return {
    pid: serviceOf(service.pid),
    partitions: async () => (await scrape(metrics))('sluice_ingest_partitions'),
    async end() {
      const code = await service.end();
      if (code !== 0) throw new Error(`ingest ended with ${code}: ${service.stderr()}`);
    },
  };
}

/** Resolves when each of these processes has partitions, and together they have all. */
async function divided(ingests: readonly Ingest[]): Promise<void> {
  await waitFor(
    async () => {
      const counts = await Promise.all(ingests.map((ingest) => ingest.partitions()));
      return Math.min(...counts) > 0 && counts.reduce((sum, count) => sum + count, 0) === ALL_PARTITIONS;
    },
    DEADLINE_MS,
    'every process has its partitions',
  );
}

async function storedIn({ clickhouse, topic }: Target): Promise<number> {
  const [found] = await select<{ events: number }>(
    clickhouse,
    'SELECT toFloat64(sum(end)) AS events FROM (SELECT max(last) + 1 AS end FROM batches WHERE topic = {topic:String} GROUP BY partition)',
    { topic },
  );
  return found!.events;
}

async function costsInTurn(
  broker: BenchBroker,
  server: TestServer,
  events: number,
  rounds: number,
): Promise<Map<number, Cost[]>> {
  const backlog: Backlog = { kind: 'edge', events, partitions: PARTITIONS };
  await produceBacklog(broker, backlog);
  const costs = new Map<number, Cost[]>(PROCESSES.map((processes) => [processes, []]));
  for (let round = 0; round < rounds; round++)
    // another one goes first in every round
    for (const i of PROCESSES.keys()) {
      const processes = PROCESSES[(i + round) % PROCESSES.length]!;
      const cost = await costOf(processes, await openTarget(broker, server, backlog), server, events);
      costs.get(processes)!.push(cost);
      process.stderr.write(
        `round ${round + 1}, ${processes} processes: ${Math.round(cost.perSecond)} events/s, ${total(cost).toFixed(1)} us CPU an event, ingest ${cost.ingest.toFixed(1)}\n`,
      );
    }
  return costs;
}

/** From the part of the backlog that warms up to its end, when all events are stored and no merge runs. */
async function costOf(processes: number, target: Target, server: TestServer, events: number): Promise<Cost> {
  const ingests = await Promise.all(Array.from({ length: processes }, () => startIngest(target)));
  const cpu = (): { ingest: number; server: number } => ({
    ingest: ingests.reduce((sum, { pid }) => sum + ownCpuSeconds(pid), 0),
    server: cpuSeconds(server.pid),
  });
  await divided(ingests);
  await waitFor(async () => (await storedIn(target)) >= events * WARM_UP, DEADLINE_MS, 'the processes are warm');
  const [from, before, stored] = [performance.now(), cpu(), await storedIn(target)];
  if (stored > events * 0.7) throw new Error(`${stored} of ${events} events were stored before all processes ran`);
  await waitFor(async () => (await storedIn(target)) === events, DEADLINE_MS, 'all events are stored');
  const seconds = (performance.now() - from) / 1000;
  await waitFor(
    async () => (await server.query('SELECT count() FROM system.merges')) === '0',
    DEADLINE_MS,
    'no merge runs',
  );
  const after = cpu();
  await divided(ingests);
  await Promise.all(ingests.map((ingest) => ingest.end()));
  await target.clickhouse.close();
  await server.query(`DROP DATABASE ${target.env['KAFKA_GROUP_ID']} SYNC`);
  const micros = (of: 'ingest' | 'server'): number => ((after[of] - before[of]) * 1e6) / (events - stored);
  return { perSecond: (events - stored) / seconds, ingest: micros('ingest'), server: micros('server') };
}

interface Span {
  readonly kind: 'joins' | 'leaves' | 'quiet';
  readonly from: number;
  readonly to: number;
}

/** One process runs all the time, a second one joins and leaves. */
async function rebalances(
  broker: BenchBroker,
  server: TestServer,
  count: number,
  rate: number,
): Promise<{ engine: string; measurements: Measurement[] }> {
  const backlog: Backlog = { kind: 'edge', events: 0, partitions: PARTITIONS };
  const target = await openTarget(broker, server, backlog);
  const producing = await openProducing(broker, backlog);
  const first = await startIngest(target);
  await divided([first]);
  let isEnding = false;
  const load = (async () => {
    const from = performance.now();
    while (!isEnding) {
      const due = Math.floor(((performance.now() - from) / 1000) * rate) - producing.produced;
      if (due > 0) await producing.add(due);
      await sleep(TICK_MS);
    }
  })();
  const spans: Span[] = [];
  const during = async (kind: Span['kind'], work: () => Promise<unknown>): Promise<void> => {
    const from = Date.now();
    await work();
    spans.push({ kind, from, to: Date.now() });
  };
  await sleep(QUIET_MS);
  while (spans.filter(({ kind }) => kind !== 'quiet').length < count) {
    let second: Ingest | undefined;
    await during('quiet', () => sleep(QUIET_MS));
    await during('joins', async () => {
      second = await startIngest(target);
      await divided([first, second]);
      await sleep(AFTER_MS);
    });
    await during('quiet', () => sleep(QUIET_MS));
    await during('leaves', async () => {
      await second!.end();
      await divided([first]);
      await sleep(AFTER_MS);
    });
  }
  await sleep(QUIET_MS);
  isEnding = true;
  await load;
  await waitFor(async () => (await storedIn(target)) === producing.produced, DEADLINE_MS, 'all events are stored');
  await first.end();
  const pauses = await pausesIn(target, spans);
  const found = await reconcile(target.clickhouse, 90);
  const engine = target.clickhouse.version;
  await producing.close();
  await target.clickhouse.close();
  return {
    engine,
    measurements: [
      ...(['joins', 'leaves', 'quiet'] as const).flatMap((kind) => pauseMeasurements(kind, rate, pauses.get(kind)!)),
      ...reconciled(found, producing.produced),
    ],
  };
}

/** For each span the longest time in which a partition with traffic had no batch, seconds. */
async function pausesIn({ clickhouse, topic }: Target, spans: readonly Span[]): Promise<Map<Span['kind'], number[]>> {
  const ledger = await select<{ partition: number; at: number }>(
    clickhouse,
    'SELECT partition, toFloat64(toUnixTimestamp64Milli(written_at)) AS at FROM batches WHERE topic = {topic:String} ORDER BY partition, at',
    { topic },
  );
  const pauses = new Map<Span['kind'], number[]>([
    ['joins', []],
    ['leaves', []],
    ['quiet', []],
  ]);
  for (const { kind, from, to } of spans) {
    let longest = 0;
    for (const [i, { partition, at }] of ledger.entries()) {
      const next = ledger[i + 1];
      if (next?.partition === partition && next.at > from && at < to) longest = Math.max(longest, next.at - at);
    }
    pauses.get(kind)!.push(longest / 1000);
  }
  return pauses;
}

function pauseMeasurements(kind: Span['kind'], rate: number, pauses: readonly number[]): Measurement[] {
  const what = {
    joins: `a process joins at ${rate} events/s: longest pause of a partition`,
    leaves: `a process leaves at ${rate} events/s: longest pause of a partition`,
    quiet: `the same ${QUIET_MS / 1000} s without a rebalance`,
  }[kind];
  return [0.5, 0.95, 1].map((q) => ({
    what: `${what}, ${q === 1 ? 'most' : `p${q * 100}`} of ${pauses.length}`,
    value: quantile(pauses, q),
    unit: 's',
    ...(q === 0.95 && kind !== 'quiet' && { goal: { atMost: 3 } }),
  }));
}
