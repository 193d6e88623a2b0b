import { createPopulation } from '../demo/population.ts';
import { waitFor } from '../test/harness/wait-for.ts';
import { produceBacklog, startBenchBroker, topicsOf, type Backlog } from './backlog.ts';
import { load } from './cached.ts';
import { PROJECTS, SEED } from './filled.ts';
import { quantile, report } from './report.ts';
import { scrape, startService } from './service.ts';

const BACKLOG = 1_500_000;
const SECONDS = 15;
const RATE = 1_000;
const STORED = 'sluice_ingest_events_total';

/**
 * Cached answers of `npm start` while its ingest works off a backlog of edge events as fast as it can: the load
 * generator and the broker are on the same cores.
 */
export async function benchBesideIngest(): Promise<void> {
  const broker = await startBenchBroker();
  const backlog: Backlog = { kind: 'edge', events: BACKLOG };
  try {
    await produceBacklog(broker, backlog);
    const sluice = await startService(broker, topicsOf(backlog));
    try {
      await waitFor(async () => (await scrape(sluice.address))(STORED) > 0, 30_000, 'ingest has begun');
      const project = createPopulation(SEED, PROJECTS, 0).project(0).ref;
      const path = `functions.invocation-stats?project=${project}`;
      await sluice.ask('functions.invocation-stats', { project });
      // each scrape begins the lag of the event loop anew
      const [from, before] = [performance.now(), (await scrape(sluice.address))(STORED)];
      const outcome = await load(`${sluice.address}/api/endpoints/${path}`, {
        connections: 50,
        seconds: SECONDS,
        rate: RATE,
      });
      const [seconds, metrics] = [(performance.now() - from) / 1000, await scrape(sluice.address)];
      const after = metrics(STORED);
      if (after >= BACKLOG) throw new Error('the backlog came to its end before the load did');
      report({
        bench: 'beside-ingest',
        seed: SEED,
        measurements: [
          { what: 'events stored meanwhile', value: (after - before) / seconds, unit: 'events/s' },
          { what: 'cached answers meanwhile', value: outcome.requests.average, unit: 'requests/s' },
          { what: `cached answers, ${RATE} wanted a second, p50`, value: outcome.latency.p50, unit: 'ms' },
          { what: 'the same, p90', value: outcome.latency.p90, unit: 'ms' },
          { what: 'the same, p99', value: outcome.latency.p99, unit: 'ms', goal: { atMost: 50 } },
          { what: 'the same, the longest', value: outcome.latency.max, unit: 'ms' },
          {
            what: 'without the first second, in which 50 connections are opened at once, p99',
            value: quantile(outcome.open, 0.99),
            unit: 'ms',
            goal: { atMost: 50 },
          },
          { what: 'the same, the longest', value: quantile(outcome.open, 1), unit: 'ms' },
          {
            what: 'lag of the event loop, p99 (its own work and its wait for a core)',
            value: metrics('nodejs_eventloop_lag_p99_seconds') * 1000,
            unit: 'ms',
          },
        ],
      });
    } finally {
      await sluice.end();
    }
  } finally {
    await broker.stop();
  }
}
