import { waitFor } from '../test/harness/wait-for.ts';
import { produceBacklog, startBenchBroker, topicsOf, type Backlog, type BenchBroker } from './backlog.ts';
import { startConsumer } from './consumer.ts';
import type { Contestant } from './consumer-process.ts';
import { SEED } from './filled.ts';
import { ofRuns, readOptions, report, type Measurement } from './report.ts';
import { cpuSeconds, residentOf } from './service.ts';

/** ClickHouse's Kafka table at the best settings that were found for it; what else was tried stands in README.md. */
const TUNED =
  ', kafka_num_consumers = 3, kafka_thread_per_consumer = 1, kafka_flush_interval_ms = 500, kafka_max_block_size = 65536, kafka_poll_max_batch_size = 65536';
const DEADLINE_MS = 120_000;
/** Each look takes about 6 ms of CPU in the engine that is measured. */
const POLL_MS = 200;
/** Of the smaller backlogs: what takes as long as the large one at a quarter of its speed. */
const SMALLER = 4;

type Runner = Pick<Contestant, 'kind' | 'tableSettings'>;
const sluice: Runner = { kind: 'sluice' };
const kafkaEngine: Runner = { kind: 'kafka_engine' };
const tunedKafkaEngine: Runner = { kind: 'kafka_engine', tableSettings: TUNED };
const plain: Runner = { kind: 'plain' };

interface Ingested {
  readonly perSecond: number;
  /** microseconds of CPU an event, of the consumer with its engine */
  readonly cpuMicros: number;
  /** megabytes at most */
  readonly resident: number;
  readonly version: string;
}

/**
 * From the start of consumption to all events queryable in their raw tables and in every rollup, on an engine that was
 * empty.
 */
async function ingestOnce(broker: BenchBroker, runner: Runner, backlog: Backlog): Promise<Ingested> {
  const { events } = backlog;
  const consumer = await startConsumer({
    ...runner,
    env: {
      KAFKA_BROKERS: broker.brokers.join(','),
      KAFKA_TOPICS: topicsOf(backlog),
    },
  });
  try {
    const [from, cpuBefore] = [performance.now(), cpuSeconds(consumer.pid)];
    consumer.consume();
    await waitFor(
      async () => {
        const { stored, dead_lettered } = await consumer.row<{ stored: number; dead_lettered: number }>('ingested');
        if (dead_lettered > 0) throw new Error(`${dead_lettered} dead letters`);
        return stored >= events && (await consumer.row<{ equal: number }>('rollups_equal_raw')).equal === 1;
      },
      DEADLINE_MS,
      `${events} events in the raw tables and in the rollups`,
      POLL_MS,
    );
    const [seconds, cpu] = [(performance.now() - from) / 1000, cpuSeconds(consumer.pid) - cpuBefore];
    return {
      perSecond: events / seconds,
      cpuMicros: (cpu * 1e6) / events,
      resident: residentOf(consumer.pid).most,
      version: consumer.version,
    };
  } finally {
    await consumer.end();
  }
}

/** Runs of several contestants in turn, so that what else the machine does meets all of them. */
async function inTurn<K extends string>(
  rounds: number,
  runs: Readonly<Record<K, () => Promise<Ingested>>>,
): Promise<Record<K, Ingested[]>> {
  const names = Object.keys(runs) as K[];
  const results = Object.fromEntries(names.map((name) => [name, []])) as unknown as Record<K, Ingested[]>;
  for (let round = 0; round < rounds; round++) {
    // another one goes first in every round
    for (const name of [...names.slice(round % names.length), ...names.slice(0, round % names.length)]) {
      const result = await runs[name]();
      results[name].push(result);
      process.stderr.write(
        `round ${round + 1}, ${name}: ${Math.round(result.perSecond)} events/s, ${result.cpuMicros.toFixed(1)} us CPU an event, ${result.resident} MB\n`,
      );
    }
  }
  return results;
}

const rates = (runs: readonly Ingested[]): number[] => runs.map((r) => r.perSecond);
const costs = (runs: readonly Ingested[]): number[] => runs.map((r) => r.cpuMicros);
/** of the runs of one round */
const ratios = (a: readonly number[], b: readonly number[]): number[] => a.map((value, i) => value / b[i]!);

/**
 * npm run bench -- ingest [--events 400000] [--rounds 3]: this ingest beside what one would take instead, on the same
 * events, engine, tables and views.
 */
export async function benchIngest(): Promise<void> {
  const options = readOptions({ events: '400000', rounds: '3' });
  const events = Number(options.events);
  const edge: Backlog = { kind: 'edge', events };
  const fewer: Backlog = { kind: 'edge', events: Math.ceil(events / SMALLER) };
  // as many as in JSON: what a run costs once counts in both
  const avro: Backlog = { kind: 'avro', events };
  const mix: Backlog = { kind: 'mix', events: Math.ceil(events / 2) };
  const broker = await startBenchBroker();
  try {
    for (const backlog of [edge, fewer, avro, mix]) await produceBacklog(broker, backlog);
    const r = await inTurn(Number(options.rounds), {
      sluice: () => ingestOnce(broker, sluice, edge),
      tuned: () => ingestOnce(broker, tunedKafkaEngine, edge),
      byDefault: () => ingestOnce(broker, kafkaEngine, fewer),
      plain: () => ingestOnce(broker, plain, fewer),
      avro: () => ingestOnce(broker, sluice, avro),
      mix: () => ingestOnce(broker, sluice, mix),
    });
    const perSecond = (what: string, runs: readonly Ingested[]): Measurement[] => [
      { what, unit: 'events/s', ...ofRuns(rates(runs)) },
      { what: 'the same, CPU', unit: 'us an event', ...ofRuns(costs(runs)) },
      { what: 'the same, resident at most', unit: 'MB', ...ofRuns(runs.map((run) => run.resident)) },
    ];
    const beside = (what: string, runs: readonly Ingested[], others: readonly Ingested[]): Measurement[] => [
      {
        what: `${what}, events/s`,
        unit: 'times',
        ...ofRuns(ratios(rates(runs), rates(others))),
        goal: { atLeast: 1.2 },
      },
      {
        what: 'the same, CPU an event',
        unit: 'times',
        ...ofRuns(ratios(costs(runs), costs(others))),
        goal: { atMost: 1.4 },
      },
    ];
    report({
      bench: 'ingest',
      seed: SEED,
      engine: r.sluice[0]!.version,
      measurements: [
        ...perSecond(`sluice, ${events} edge events in JSON`, r.sluice),
        ...perSecond(`Kafka table engine, best settings, ${events} of the same`, r.tuned),
        ...perSecond(`Kafka table engine, default settings, ${fewer.events} of the same`, r.byDefault),
        ...perSecond(`kafkajs, JSON.parse and client.insert, ${fewer.events} of the same`, r.plain),
        ...beside('sluice to the Kafka table engine at its best', r.sluice, r.tuned),
        {
          what: 'sluice to the Kafka table engine by default, events/s',
          unit: 'times',
          ...ofRuns(ratios(rates(r.sluice), rates(r.byDefault))),
          goal: { atLeast: 3.5 },
        },
        {
          what: 'sluice to the plain consumer, events/s',
          unit: 'times',
          ...ofRuns(ratios(rates(r.sluice), rates(r.plain))),
        },
        ...perSecond(`sluice, ${avro.events} edge events as Avro single objects`, r.avro).map((m, i) =>
          i === 0 ? { ...m, goal: { atLeast: 40_000 } } : m,
        ),
        {
          what: 'Avro to JSON, CPU an event',
          unit: 'times',
          ...ofRuns(ratios(costs(r.avro), costs(r.sluice))),
          goal: { atMost: 1 },
        },
        ...perSecond(`sluice, ${mix.events} events of the nine sources`, r.mix),
      ],
    });
  } finally {
    await broker.stop();
  }
}

const SMOKE_EVENTS = 60_000;
const SMOKE_ROUNDS = 2;
/**
 * Measured 0.65 to 0.77 on two fast cores with nothing else to do, and 0.46 to 0.60 on two slow ones: low enough that
 * noise does not reach it, and a large regression does.
 */
const SMOKE_RATIO = 0.4;

/**
 * npm run bench -- smoke: a guard for every change, under a minute. The best run of each counts: other work on the
 * machine only ever slows a run.
 */
export async function benchSmoke(): Promise<void> {
  const backlog: Backlog = { kind: 'edge', events: SMOKE_EVENTS };
  const broker = await startBenchBroker();
  try {
    await produceBacklog(broker, backlog);
    const r = await inTurn(SMOKE_ROUNDS, {
      sluice: () => ingestOnce(broker, sluice, backlog),
      tuned: () => ingestOnce(broker, tunedKafkaEngine, backlog),
    });
    report({
      bench: 'smoke',
      seed: SEED,
      engine: r.sluice[0]!.version,
      measurements: [
        {
          what: `sluice to the Kafka table engine at its best, ${SMOKE_EVENTS} edge events, best of ${SMOKE_ROUNDS}, events/s`,
          value: Math.max(...rates(r.sluice)) / Math.max(...rates(r.tuned)),
          unit: 'times',
          goal: { atLeast: SMOKE_RATIO },
        },
      ],
    });
  } finally {
    await broker.stop();
  }
}
