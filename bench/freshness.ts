import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { RunningSluice } from '../test/harness/service.ts';
import { waitFor } from '../test/harness/wait-for.ts';
import {
  openProducing,
  startBenchBroker,
  topicOf,
  topicsOf,
  type Backlog,
  type BenchBroker,
  type Producing,
} from './backlog.ts';
import { SEED } from './filled.ts';
import { quantile, report, type Measurement } from './report.ts';
import { position, startService } from './service.ts';

const RATES = [{ share: 0.5, goal: { atMost: 1.5 } }, { share: 0.9 }] as const;
const LOW_RATE = 100;
const SECONDS = 25;
const WARM_UP_SECONDS = 4;
const TICK_MS = 50;
const POLL_MS = 100;
/** for the maximum: so many wait always */
const WAITING = 60_000;
const EVENTS_PER_STEP = 6_000;
const DEADLINE_MS = 120_000;

/** functions.invocation-stats, not cached, is what its rollup says at that moment */
const UNCACHED = 'bench.invocation-stats';
const backlog: Backlog = { kind: 'mix', events: WAITING };
/** So far; two events each. */
let probes = 0;

/**
 * npm run bench -- freshness: acknowledged produce to visible in an answer, at a low rate and at shares of the most
 * that goes in. Producer and broker are on the same cores.
 */
export async function benchFreshness(): Promise<void> {
  const broker = await startBenchBroker();
  const producing = await openProducing(broker, backlog);
  try {
    const sluice = await startService(broker, topicsOf(backlog), {
      ENDPOINTS_DIR: writeUncached(broker.folder),
    });
    try {
      const most = await maximum(sluice, producing);
      const measurements: Measurement[] = [
        {
          what: 'most that goes in, nine sources, producer and broker on the same cores',
          value: most,
          unit: 'events/s',
        },
      ];
      for (const { rate, what, goal } of [
        { rate: LOW_RATE, what: `${LOW_RATE} events/s`, goal: undefined },
        ...RATES.map((r) => ({
          rate: most * r.share,
          what: `${r.share * 100} % of the most`,
          goal: 'goal' in r ? r.goal : undefined,
        })),
      ]) {
        const { perSecond, logs, stats } = await atRate(sluice, broker, producing, rate);
        measurements.push({ what: `${what}: events sent`, value: perSecond, unit: 'events/s' });
        for (const [name, ages] of [
          ['logs.all', logs],
          ['functions.invocation-stats', stats],
        ] as const) {
          for (const q of [0.5, 0.95, 0.99])
            measurements.push({
              what: `${what}: acknowledged to visible in ${name}, p${q * 100} of ${ages.length}`,
              value: quantile(ages, q),
              unit: 's',
              ...(goal !== undefined && q === 0.95 && { goal }),
            });
        }
        await caughtUp(sluice, producing);
      }
      report({ bench: 'freshness', seed: SEED, measurements });
    } finally {
      await sluice.end();
    }
  } finally {
    await producing.close();
    await broker.stop();
  }
}

/** A folder of endpoints with functions.invocation-stats under another name, without its cache. */
function writeUncached(folder: string): string {
  const shipped = new URL('../services/query/endpoints/functions.invocation-stats', import.meta.url).href;
  const endpoints = join(folder, 'endpoints');
  mkdirSync(endpoints);
  writeFileSync(join(endpoints, `${UNCACHED}.sql`), readFileSync(new URL(`${shipped}.sql`)));
  const yaml = readFileSync(new URL(`${shipped}.yaml`), 'utf8')
    .replace(/^id: .*$/m, 'id: 00000000-0000-4000-8000-000000000001')
    .replace(/^name: .*$/m, `name: ${UNCACHED}`)
    .replace(/^cache_seconds: .*\nrequery_seconds: .*$/m, 'cache_seconds: 0');
  writeFileSync(join(endpoints, `${UNCACHED}.yaml`), yaml);
  return endpoints;
}

async function caughtUp(sluice: RunningSluice, producing: Producing): Promise<void> {
  await waitFor(
    async () => (await position(sluice.address)) === producing.produced + 2 * probes,
    DEADLINE_MS,
    'all events are stored',
  );
}

/** Events a second while some wait always. */
async function maximum(sluice: RunningSluice, producing: Producing): Promise<number> {
  const fill = async (seconds: number): Promise<void> => {
    for (const until = performance.now() + seconds * 1000; performance.now() < until;) {
      if (producing.produced - (await position(sluice.address)) < WAITING) await producing.add(EVENTS_PER_STEP);
      else await sleep(TICK_MS);
    }
  };
  await fill(WARM_UP_SECONDS);
  const [from, before] = [performance.now(), await position(sluice.address)];
  await fill(SECONDS);
  const perSecond = ((await position(sluice.address)) - before) / ((performance.now() - from) / 1000);
  await caughtUp(sluice, producing);
  return perSecond;
}

/**
 * Sends at that rate; beside it, one after the other, an edge event and an invocation of a project of their own are
 * looked for. Ages in seconds.
 */
async function atRate(
  sluice: RunningSluice,
  broker: BenchBroker,
  producing: Producing,
  rate: number,
): Promise<{ perSecond: number; logs: number[]; stats: number[] }> {
  const producer = broker.kafka.producer();
  await producer.connect();
  const [logs, stats]: [number[], number[]] = [[], []];
  const look = async (
    endpoint: string,
    params: Record<string, string>,
    isThere: (row: Record<string, unknown>) => boolean,
    ages: number[],
  ): Promise<void> => {
    const from = performance.now();
    while (!(await sluice.ask(endpoint, params)).some(isThere)) {
      if (performance.now() - from > DEADLINE_MS)
        throw new Error(`not in ${endpoint} within ${DEADLINE_MS} ms: ${JSON.stringify(params)}`);
      await sleep(POLL_MS);
    }
    ages.push((performance.now() - from) / 1000);
  };
  const probe = async (): Promise<void> => {
    const project = `probe-${++probes}`;
    const invocation = {
      id: project,
      metadata: { project_ref: project, function_id: 'probe', execution_time_ms: 1, response: { status_code: 200 } },
    };
    await producer.sendBatch({
      topicMessages: [
        {
          topic: topicOf(backlog, 'edge_logs'),
          messages: [{ key: project, value: JSON.stringify({ id: project, project, metadata: {} }) }],
        },
        {
          topic: topicOf(backlog, 'function_edge_logs'),
          messages: [{ key: project, value: JSON.stringify(invocation) }],
        },
      ],
    });
    await Promise.all([
      look('logs.all', { project }, () => true, logs),
      look(UNCACHED, { project, interval: '15min' }, (row) => Number(row['count']) > 0, stats),
    ]);
  };

  const [from, before] = [performance.now(), producing.produced];
  const until = from + SECONDS * 1000;
  const send = async (): Promise<void> => {
    for (let now = from; now < until; now = performance.now()) {
      const wanted = Math.floor(((now - from) / 1000) * rate) - (producing.produced - before);
      if (wanted > 0) await producing.add(wanted);
      await sleep(Math.max(0, TICK_MS - (performance.now() - now)));
    }
  };
  const probeAgain = async (): Promise<void> => {
    while (performance.now() < until) {
      await probe();
      await sleep(Math.random() * POLL_MS);
    }
  };
  await Promise.all([send(), probeAgain()]);
  const perSecond = (producing.produced - before) / SECONDS;
  await producer.disconnect();
  return { perSecond, logs, stats };
}
