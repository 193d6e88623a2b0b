import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { rows } from '../common/clickhouse/clickhouse.ts';
import { openEmbedded } from '../common/clickhouse/embedded/embedded.ts';
import { settingsTable } from '../common/config/settings.ts';
import { createLogger } from '../common/logger.ts';
import { temporaryFolder } from '../test/harness/clickhouse.ts';
import { waitFor } from '../test/harness/wait-for.ts';
import { openProducing, startBenchBroker, topicsOf, type Backlog } from './backlog.ts';
import { SEED, statement } from './filled.ts';
import { quantile, report } from './report.ts';
import { position, residentOf, serviceOf, startService } from './service.ts';

/** so many wait always */
const WAITING = 200_000;
const EVENTS_PER_STEP = 30_000;
const SAMPLE_MS = 500;
const IDLE_MS = 20_000;
const DEADLINE_MS = 120_000;

/**
 * npm run bench -- memory [--minutes 2] [--batch-bytes 33554432]: what `npm start` holds while it ingests events of the
 * nine sources as fast as it can, and after; what they take on disk.
 */
export async function benchMemory(): Promise<void> {
  const { values } = parseArgs({
    args: process.argv.slice(3),
    options: {
      minutes: { type: 'string', default: '2' },
      'batch-bytes': { type: 'string', default: String(settingsTable.BATCH_MAX_BYTES.default) },
      json: { type: 'boolean' },
    },
  });
  const folder = temporaryFolder();
  const broker = await startBenchBroker(folder.path);
  const backlog: Backlog = { kind: 'mix', events: WAITING };
  const producing = await openProducing(broker, backlog);
  try {
    await producing.add(WAITING);
    const sluice = await startService(broker, folder.path, topicsOf(backlog), {
      BATCH_MAX_BYTES: values['batch-bytes'],
    });
    const service = serviceOf(sluice.pid);
    const resident: number[] = [];
    const sampling = setInterval(() => resident.push(residentOf(service).total), SAMPLE_MS);
    try {
      const [from, until] = [performance.now(), performance.now() + Number(values.minutes) * 60_000];
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

      const clickhouse = await openEmbedded({ dataDir: folder.path, logger: createLogger('error') });
      const onDisk = rows<{ table: string; bytes: number }>(
        await clickhouse.read({ sql: statement('bytes_per_event'), format: 'JSONEachRow' }),
      );
      await clickhouse.close();
      const ascending = resident.toSorted((a, b) => a - b);
      report({
        bench: 'memory',
        seed: SEED,
        engine: clickhouse.version,
        measurements: [
          {
            what: `resident while ${producing.produced} events of nine sources go in, ${values.minutes} minutes, BATCH_MAX_BYTES=${values['batch-bytes']}, median`,
            value: quantile(ascending, 0.5),
            unit: 'MB',
          },
          { what: 'the same, most', value: quantile(ascending, 1), unit: 'MB', goal: { atMost: 800 } },
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
    folder.remove();
  }
}
