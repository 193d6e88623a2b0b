import { readFileSync, renameSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { select, type ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import { databaseOf } from '../../../common/clickhouse/database.ts';
import { migrate } from '../../../common/clickhouse/migrations.ts';
import { backupPlaces } from '../../../common/config/backup-places.ts';
import { readSettings } from '../../../common/config/settings.ts';
import { createRegistry } from '../../../common/metrics.ts';
import { createBackup, destinationOf } from '../../../services/ingest/operate/backup.ts';
import { reconcile } from '../../../services/ingest/operate/reconcile.ts';
import type { Context } from '../../../services/rollup/period/context.ts';
import { admitNew } from '../../../services/rollup/history.ts';
import { createRollupMetrics } from '../../../services/rollup/period/metrics.ts';
import { beginToday, newestPeriod } from '../../../services/rollup/period/periods.ts';
import { readOpenRepairs, repairOpen, requestRepair } from '../../../services/rollup/repairs.ts';
import {
  openTestEmbedded,
  openTestFace,
  temporaryFolder,
  testLogger,
  type TestClickHouse,
} from '../../harness/clickhouse.ts';
import { openTestStore } from '../../harness/ingest-store.ts';
import { waitFor } from '../../harness/wait-for.ts';
import { edgeEvent } from './world.ts';

// Guarantee: what the runbook says of SluiceRollupSourceIncomplete brings lost rows back, each once, and then repairs
// end. Its statements run here as they are written there, but for names, days and places.

const RUNBOOK = readFileSync(new URL('../../../docs/runbook.md', import.meta.url), 'utf8');
const [, SECTION = ''] = /^### SluiceRollupSourceIncomplete\n([^]*?)^###/m.exec(RUNBOOK) ?? [];
const inText = (verb: string): string => new RegExp(`\`(${verb} [^\`]*)\``).exec(SECTION)![1]!;
const BLOCK = /```\n([^]*?)```/
  .exec(SECTION)![1]!
  .split(';')
  .map((sql) => sql.trim())
  .filter((sql) => sql !== '');

const REF = 'abcdefghijklmnopqrst';
const ROWS = 10;

describe.each([
  ['the embedded engine', openTestEmbedded],
  ['a server', () => openTestFace()],
])('on %s', (_, open) => {
  let engine: TestClickHouse;
  let clickhouse: ClickHouse;
  let context: Context;
  let database: string;
  let folder: ReturnType<typeof temporaryFolder>;
  const now = Date.now();
  const day = new Date(now).toISOString().slice(0, 10);

  beforeEach(async () => {
    folder = temporaryFolder();
    engine = await open();
    ({ clickhouse } = engine);
    database = await databaseOf(clickhouse);
    await migrate(clickhouse, testLogger);
    context = {
      clickhouse,
      settings: readSettings({}),
      logger: testLogger,
      metrics: createRollupMetrics(createRegistry()),
      clock: Date.now,
      engineClock: () => Promise.resolve(Date.now()),
      wait: () => Promise.resolve(),
    };
    await beginToday(context);
    await admitNew(context);
    for (const table of ['edge_logs', 'dead_letters']) await clickhouse.execute({ sql: `SYSTEM STOP MERGES ${table}` });
  });
  afterEach(async () => {
    await engine.close();
    folder.remove();
  });

  /** One part of each table: rows, and a dead letter. `at`: its number. */
  async function send(at: number): Promise<void> {
    const values = Array.from({ length: ROWS }, () => edgeEvent(now, `https://${REF}.supabase.co/rest/v1/t`));
    await openTestStore(clickhouse, { source: 'edge_logs' }).writeBatch({
      evaluatedAt: now,
      period: await newestPeriod(context),
      records: [...values, 'no event'].map((value, i) => ({
        offset: at * (ROWS + 1) + i,
        time: now,
        key: null,
        value: Buffer.from(value),
        headers: [],
      })),
    });
  }
  const count = async (sql: string): Promise<number> =>
    (await select<{ n: number }>(clickhouse, `SELECT toUInt32(${sql}) AS n`))[0]!.n;

  async function ask(): Promise<void> {
    const from = Date.parse(day) / 1000;
    const span = { period: await newestPeriod(context), from: from - 86_400, to: from + 2 * 86_400 };
    await requestRepair(context, { source: 'edge_logs', ...span, reason: 'audit', accept_loss: false });
    expect(await repairOpen(context)).toBe(1);
    expect(await readOpenRepairs(clickhouse)).toMatchObject([{ outcome: 'incomplete' }]);
  }

  /** The repair ends, and the rollup is what raw is. */
  async function expectWhole(batches: number): Promise<void> {
    await waitFor(async () => (await repairOpen(context)) === 0, 30_000, 'the repair is done');
    expect(await count('(SELECT count() FROM edge_logs)')).toBe(batches * ROWS);
    expect(await count('(SELECT sum(requests) FROM api_requests WHERE width = 3600)')).toBe(batches * ROWS);
    expect(await reconcile(clickhouse, 90, 0)).toMatchObject({ ok: true, faults: [] });
  }

  async function partsOf(table: string): Promise<string[]> {
    const sql = `SELECT name FROM system.parts WHERE active AND database = currentDatabase() AND table = '${table}' ORDER BY name`;
    return (await select<{ name: string }>(clickhouse, sql)).map(({ name }) => name);
  }

  /** With the names of this test. */
  const here = (sql: string): string =>
    sql
      .replaceAll('sluice.', `${database}.`)
      .replaceAll("'sluice'", `'${database}'`)
      .replaceAll('2026-11-20', day)
      .replaceAll("Disk('backups', 'monday')", destinationOf(backupPlaces(`local=${folder.path}`), 'local/monday'));

  test('a part that the engine set aside is renamed and attached', async () => {
    for (const batch of [0, 1]) await send(batch);
    const [name] = await partsOf('edge_logs');
    await clickhouse.execute({ sql: `ALTER TABLE edge_logs DETACH PART '${name}'` });
    const look = here(inText('SELECT'));
    const [detached] = await select<{ path: string }>(clickhouse, look);
    // as the engine does with a part that it cannot read at its start
    renameSync(detached!.path, join(dirname(detached!.path), `broken-on-start_${name}`));
    const [aside] = await select<{ table: string; name: string; reason: string; path: string }>(clickhouse, look);
    expect(aside).toMatchObject({ table: 'edge_logs', name: `broken-on-start_${name}`, reason: 'broken-on-start' });
    await ask();

    const attach = (part: string): Promise<void> =>
      clickhouse.execute({ sql: here(inText('ALTER')).replace('20261120_1_1_0', part) });
    await expect(attach(aside!.name)).rejects.toMatchObject({ codeName: 'BAD_DATA_PART_NAME' });
    renameSync(aside!.path, join(dirname(aside!.path), basename(aside!.path).slice(`${aside!.reason}_`.length)));
    await attach(name!);
    await expectWhole(2);
  });

  test('rows that are lost come from a backup, without those that came after it', async () => {
    for (const batch of [0, 1]) await send(batch);
    const places = backupPlaces(`local=${folder.path}`);
    await createBackup({ clickhouse, places, logger: testLogger }, { place: 'local/monday' });
    await send(2);
    const lost = await partsOf('edge_logs');
    await clickhouse.execute({ sql: `ALTER TABLE edge_logs DROP PART '${lost[0]}'` });
    await ask();
    for (const sql of BLOCK) await clickhouse.execute({ sql: here(sql) });
    await expectWhole(3);

    const [letter] = await partsOf('dead_letters');
    await clickhouse.execute({ sql: `ALTER TABLE dead_letters DROP PART '${letter}'` });
    expect((await reconcile(clickhouse, 90, 0)).faults).toEqual([
      expect.stringContaining('dead letters differ from the ledger'),
    ]);
    const [, days, partition] = /months: `([^`]*)`, `PARTITION ([^`]*)`/.exec(RUNBOOK)!;
    const month = day.slice(0, 7).replace('-', '');
    for (const sql of BLOCK)
      await clickhouse.execute({
        sql: here(
          sql
            .replaceAll('edge_logs', 'dead_letters')
            .replaceAll("toDate(timestamp) = '2026-11-20'", days!)
            .replace("'2026-11-20'", partition!),
        ).replaceAll('202611', month),
      });
    await expectWhole(3);
  });
});
