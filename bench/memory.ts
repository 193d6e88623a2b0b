import { setTimeout as sleep } from 'node:timers/promises';
import { select } from '../common/clickhouse/clickhouse.ts';
import { openEmbedded } from '../common/clickhouse/embedded/embedded.ts';
import { settingsTable } from '../common/config/settings.ts';
import { createLogger } from '../common/logger.ts';
import { waitFor } from '../test/harness/wait-for.ts';
import { openProducing, startBenchBroker, topicsOf, type Backlog } from './backlog.ts';
import { SEED, statement } from './filled.ts';
import { quantile, readOptions, report } from './report.ts';
import { position, residentOf, serviceOf, startService } from './service.ts';

/** so many wait always */
const WAITING = 200_000;
const EVENTS_PER_STEP = 30_000;
const SAMPLE_MS = 500;
const IDLE_MS = 20_000;
const DEADLINE_MS = 120_000;

/**
 * npm run bench -- memory [--minutes 2] [--batch-bytes 26214400]: what `npm start` holds while it ingests events of the
 * nine sources as fast as it can, and after; what they take on disk.
 */
export async function benchMemory(): Promise<void> {
  const options = readOptions({ minutes: '2', 'batch-bytes': String(settingsTable.BATCH_MAX_BYTES.default) });
  const broker = await startBenchBroker();
  const backlog: Backlog = { kind: 'mix', events: WAITING };
  const producing = await openProducing(broker, backlog);
  try {
    await producing.add(WAITING);
    const sluice = await startService(broker, topicsOf(backlog), {
      BATCH_MAX_BYTES: options['batch-bytes'],
    });
    const service = serviceOf(sluice.pid);
    const resident: number[] = [];
    const sampling = setInterval(() => resident.push(residentOf(service).total), SAMPLE_MS);
    try {
      const [from, until] = [performance.now(), performance.now() + Number(options.minutes) * 60_000];
      while (performance.now() < until) {
        const waits = producing.produced - (await position(sluice.address));
        if (waits < WAITING) await producing.add(EVENTS_PER_STEP);
        else await sleep(SAMPLE_MS);
      }
      const perSecond = (await position(sluice.address)) / ((performance.now() - from) / 1000);
      clearInterval(sampling);
      await waitFor(
        async () => (await position(sluice.address)) === producing.produced,
        DEADLINE_MS,
        'all events are stored',
      );
      await sleep(IDLE_MS);
      const idle = residentOf(service);
      await sluice.end();

      const clickhouse = await openEmbedded({ dataDir: broker.folder, logger: createLogger('error') });
      const onDisk = await select<{ table: string; bytes: number }>(clickhouse, statement('bytes_per_event'));
      await clickhouse.close();
      report({
        bench: 'memory',
        seed: SEED,
        engine: clickhouse.version,
        measurements: [
          {
            what: `resident while ${producing.produced} events of nine sources go in, ${options.minutes} minutes, BATCH_MAX_BYTES=${options['batch-bytes']}, median`,
            value: quantile(resident, 0.5),
            unit: 'MB',
            goal: { atMost: 800 },
          },
          { what: 'the same, most', value: quantile(resident, 1), unit: 'MB', goal: { atMost: 1_000 } },
          { what: 'events stored meanwhile, their producer on the same cores', value: perSecond, unit: 'events/s' },
          { what: `resident ${IDLE_MS / 1000} s after the last event`, value: idle.total, unit: 'MB' },
          { what: 'of it mapped from files', value: idle.files, unit: 'MB' },
          ...onDisk.map(({ table, bytes }) => ({ what: `${table} on disk`, value: bytes, unit: 'bytes an event' })),
        ],
      });
    } finally {
      clearInterval(sampling);
      await sluice.end();
    }
  } finally {
    await producing.close();
    await broker.stop();
  }
}
