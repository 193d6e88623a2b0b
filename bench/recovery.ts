import { startScript } from '../test/harness/service.ts';
import { waitFor } from '../test/harness/wait-for.ts';
import { openProducing, startBenchBroker, topicsOf, type Backlog } from './backlog.ts';
import { SEED } from './filled.ts';
import { readOptions, reconciled, report } from './report.ts';
import { API_KEY, position, serviceOf, startService } from './service.ts';

/** Of the events that wait, so many more are there before, to be in the middle of. */
const BEFORE = 0.2;
const DEADLINE_MS = 180_000;

/**
 * npm run bench -- recovery [--events 1000000]: kill -9 in the middle of full ingest, with that many events waiting,
 * and a new start at once.
 */
export async function benchRecovery(): Promise<void> {
  const waiting = Number(readOptions({ events: '1000000' }).events);
  const backlog: Backlog = { kind: 'edge', events: Math.ceil(waiting * (1 + BEFORE)) };
  const broker = await startBenchBroker();
  const producing = await openProducing(broker, backlog);
  try {
    await producing.add(backlog.events);
    const first = await startService(broker, topicsOf(backlog));
    await waitFor(async () => (await position(first.address)) > 0, DEADLINE_MS, 'ingest has begun');
    const before = await position(first.address);
    process.kill(serviceOf(first.pid), 'SIGKILL');
    const from = performance.now();
    await first.exited;
    const second = await startService(broker, topicsOf(backlog));
    try {
      const ready = (performance.now() - from) / 1000;
      await waitFor(async () => (await position(second.address)) > before, DEADLINE_MS, 'ingest goes on');
      const goesOn = (performance.now() - from) / 1000;
      await waitFor(
        async () => (await position(second.address)) === backlog.events,
        DEADLINE_MS,
        'all events are stored',
      );
      const caughtUp = (performance.now() - from) / 1000;
      const account = startScript('reconcile', { API_KEY, DATA_DIR: broker.folder }, [
        '--json',
        '--url',
        second.address,
      ]);
      await account.exited;
      const found = JSON.parse(account.stdout()) as Parameters<typeof reconciled>[0];
      report({
        bench: 'recovery',
        seed: SEED,
        measurements: [
          { what: 'events in the ledger at the kill', value: before, unit: '' },
          { what: 'kill -9 to ready again', value: ready, unit: 's' },
          { what: 'kill -9 to the first batch after it', value: goesOn, unit: 's', goal: { atMost: 12 } },
          { what: `kill -9 to all ${backlog.events} events in the ledger`, value: caughtUp, unit: 's' },
          {
            what: 'events/s from that first batch on',
            value: (backlog.events - before) / (caughtUp - goesOn),
            unit: 'events/s',
          },
          ...reconciled(found, backlog.events),
        ],
      });
    } finally {
      await second.end();
    }
  } finally {
    await producing.close();
    await broker.stop();
  }
}
