import { randomBytes } from 'node:crypto';
import { select } from '../common/clickhouse/clickhouse.ts';
import { openEmbedded } from '../common/clickhouse/embedded/embedded.ts';
import { loadMigrations, migrate } from '../common/clickhouse/migrations.ts';
import { createLogger } from '../common/logger.ts';
import { createTraffic } from '../demo/traffic.ts';
import { temporaryFolder } from '../test/harness/clickhouse.ts';
import { openTestStore } from '../test/harness/ingest-store.ts';
import { recordsOf } from './filled.ts';
import { ofRuns, report, type Measurement } from './report.ts';

const SEED = 9;
const ROUNDS = 20;
const BATCHES = [
  { events: 9, inserts: 12 },
  { events: 3_400, inserts: 2 },
] as const;

/**
 * What FSYNC costs: batches of edge events into the raw table, its rollups and the ledger, with the setting and without
 * it in turn; each round has both in another order.
 */
export async function benchFsync(): Promise<void> {
  const folder = temporaryFolder();
  const logger = createLogger('error');
  const clickhouse = await openEmbedded({ dataDir: folder.path, logger });
  try {
    const store = openTestStore(clickhouse, { source: 'edge_logs', topic: `bench-${randomBytes(4).toString('hex')}` });
    const traffic = createTraffic({ seed: SEED, projects: 50, functionsPerProject: 1, shares: { edge_logs: 1 } });
    const measured = new Map<string, number[]>();
    const bytes = new Map<number, number>();
    const waits = new Map<string, number[]>();
    const synced = async (): Promise<number> =>
      (
        await select<{ n: number }>(
          clickhouse,
          "SELECT toUInt32(sum(value)) AS n FROM system.events WHERE event IN ('FileSync', 'DirectorySync')",
        )
      )[0]!.n;
    let offset = 0;
    for (let round = 0; round <= ROUNDS; round++) {
      for (const fsync of round % 2 === 0 ? [false, true] : [true, false]) {
        await migrate(clickhouse, logger, loadMigrations(), fsync);
        for (const { events, inserts } of BATCHES) {
          for (let n = 0; n < inserts; n++) {
            const records = recordsOf(traffic, offset, events);
            offset += events;
            bytes.set(
              events,
              records.reduce((sum, r) => sum + r.value!.length, 0),
            );
            const before = await synced();
            const from = performance.now();
            await store.writeBatch({ records });
            const ms = performance.now() - from;
            const key = `${events} ${fsync}`;
            // the first round warms up
            if (round > 0) measured.set(key, [...(measured.get(key) ?? []), ms]);
            waits.set(key, [...(waits.get(key) ?? []), (await synced()) - before]);
          }
        }
      }
    }
    report({
      bench: 'fsync',
      seed: SEED,
      engine: clickhouse.version,
      measurements: BATCHES.flatMap(({ events }) =>
        [false, true].flatMap((fsync): Measurement[] => {
          const key = `${events} ${fsync}`;
          return [
            {
              what: `a batch of ${events} events (${Math.round(bytes.get(events)! / 1000)} kB) and its row of the ledger, FSYNC=${fsync}`,
              unit: 'ms',
              ...ofRuns(measured.get(key)!),
            },
            {
              what: 'the same, files and folders that it waited for (merges beside it too)',
              unit: '',
              ...ofRuns(waits.get(key)!),
            },
          ];
        }),
      ),
    });
  } finally {
    await clickhouse.close();
    folder.remove();
  }
}
