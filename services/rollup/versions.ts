import { select } from '../../common/clickhouse/clickhouse.ts';
import { announceCut, buildPeriod, untilSettled } from './build.ts';
import { readCuts, readRollups, statements, writeRollup, type Rollup } from './catalogue.ts';
import { coveredFrom, earliestStamp, periodsBetween, type Period } from './periods.ts';
import { publicView, readShape, storedName, viewName } from './shape.ts';
import { DROP_SETTINGS, isoTime, type Workshop } from './workshop.ts';

/**
 * Versions of rollups: from the migration that makes one to the moment at which it serves.
 *
 * `new`: its tables and views are there. Where the raw table is empty it serves at once. Else a cut is announced: what is judged after it, the views have seen whole.
 * `building`: ended periods before the cut are built, the newest first. Event times that are covered come from its tables; the rest from the version
 * that served before, or, where there is none, from the raw table: answers are right all along.
 * `serving`: all there is. The version before it is dropped: `retired`.
 */
export async function admitNew(workshop: Workshop): Promise<void> {
  const { clickhouse, logger } = workshop;
  const rollups = await readRollups(clickhouse);
  let cut: number | undefined;
  for (const rollup of rollups.filter((r) => r.state === 'new')) {
    if ((await partitionsBehind(workshop, rollup, servingVersion(rollups, rollup.name))).length === 0) await writeRollup(clickhouse, { ...rollup, state: 'serving' });
    else {
      cut ??= await announceCut(workshop);
      await writeRollup(clickhouse, { ...rollup, state: 'building', complete_from: cut, built_from: cut, covered_from: coveredFrom(cut) });
      logger.info({ rollup: rollup.name, version: rollup.version, covered_from: isoTime(coveredFrom(cut)) }, 'rollup_building');
    }
  }
  await publish(workshop);
}

/** The version whose tables equal the raw table for all event times: the newest that is complete. */
function servingVersion(rollups: readonly Rollup[], name: string): Rollup | undefined {
  return rollups.findLast((r) => r.name === name && r.state === 'serving');
}

/** Makes the views that queries read stand for what is true now. */
export async function publish(workshop: Workshop): Promise<void> {
  const { clickhouse, logger, metrics } = workshop;
  const rollups = await readRollups(clickhouse);
  for (const name of new Set(rollups.map((r) => r.name))) {
    const serving = servingVersion(rollups, name);
    const building = rollups.findLast((r) => r.name === name && r.state === 'building');
    const published = await select<{ name: string; comment: string }>(clickhouse, statements.publicViews, { names: [...(serving?.tables ?? []), ...(building?.tables ?? [])] });
    for (const rollup of [serving, building]) {
      if (rollup === undefined) continue;
      metrics.coveredFrom.set({ rollup: name, version: rollup.version }, rollup.covered_from);
      const shape = await readShape(clickhouse, rollup);
      for (const tier of shape.tiers) {
        if (rollup === building && serving?.tables.includes(tier.table) === true) continue;
        const comment = `version ${rollup.version} with periods, raw before ${rollup.covered_from}`;
        if (published.find((p) => p.name === tier.table)?.comment === comment) continue;
        await clickhouse.execute({ sql: publicView(shape, tier, rollup.covered_from, comment) });
        logger.info({ view: tier.table, version: rollup.version, covered_from: isoTime(rollup.covered_from) }, 'rollup_published');
      }
    }
  }
}

/**
 * Drops a version that another has replaced. Its tables go a while after its views, because whoever has looked the views up is about to look for their tables. An insert does so
 * when rows come to a view: one that takes longer than the wait fails there, and its next try, under the same token, no longer meets the view (kind `retry`,
 * common/clickhouse/errors.ts). A query does so while it is planned, and reads to its end what is dropped after that: only one whose planning stands still for the whole wait fails,
 * and its caller is told to come again.
 */
async function retire({ clickhouse, logger, timing, wait }: Workshop, rollup: Rollup, kept: readonly string[]): Promise<void> {
  for (const table of rollup.tables.toReversed()) await clickhouse.execute({ sql: `DROP VIEW IF EXISTS ${viewName(table, rollup.version)}` });
  for (const table of rollup.tables) if (!kept.includes(table)) await clickhouse.execute({ sql: `DROP VIEW IF EXISTS ${table}` });
  await wait(timing.settleMs);
  for (const table of rollup.tables) await clickhouse.execute({ sql: `DROP TABLE IF EXISTS ${storedName(table, rollup.version)}`, settings: DROP_SETTINGS });
  await writeRollup(clickhouse, { ...rollup, state: 'retired' });
  logger.info({ rollup: rollup.name, version: rollup.version }, 'rollup_retired');
}

/** Partitions of the raw table, of the rollup itself and of the version before it. */
async function partitionsBehind({ clickhouse }: Workshop, rollup: Rollup, older: Rollup | undefined): Promise<{ table: string; starts_at: number }[]> {
  const stored = [rollup, older].flatMap((r) => r?.tables.map((table) => storedName(table, r.version)) ?? []);
  return await select(clickhouse, statements.partitions, { tables: [rollup.source, ...stored] });
}

/** Periods of history that the rollup lacks, newest first. */
async function missingPeriods(workshop: Workshop, rollup: Rollup, older: Rollup | undefined): Promise<Period[]> {
  const partitions = await partitionsBehind(workshop, rollup, older);
  const oldest = Math.min(rollup.built_from, ...partitions.map((p) => (p.table === rollup.source ? earliestStamp(p.starts_at) : p.starts_at)));
  return periodsBetween(oldest, rollup.built_from, await readCuts(workshop.clickhouse));
}

/**
 * The next step of a version's way: drops one that has been replaced, or builds the next period of history of one that is not complete. Gives the milliseconds after which there is more to do: 0 = at once,
 * undefined = nothing is being built. Progress is kept in the catalogue: a restart goes on with the period that was under way.
 */
export async function nextStep(workshop: Workshop): Promise<number | undefined> {
  const { clickhouse, logger, metrics } = workshop;
  const rollups = await readRollups(clickhouse);
  const replaced = rollups.find((r) => r.state === 'serving' && r !== servingVersion(rollups, r.name));
  if (replaced !== undefined) {
    await retire(workshop, replaced, servingVersion(rollups, replaced.name)?.tables ?? []);
    return 0;
  }
  const rollup = rollups.find((r) => r.state === 'building');
  if (rollup === undefined) return undefined;
  const labels = { rollup: rollup.name, version: rollup.version };
  const settled = untilSettled(rollup.built_from, workshop);
  if (settled > 0) return settled;
  const older = servingVersion(rollups, rollup.name);
  const [next, ...rest] = await missingPeriods(workshop, rollup, older);
  if (next !== undefined) {
    const built = await buildPeriod(workshop, rollup, next, older);
    if (built.kind === 'unsettled') {
      logger.warn({ ...labels, period: isoTime(next.start), batches: built.batches.slice(0, 5) }, 'rollup_waits_for_batches');
      return UNSETTLED_RETRY_MS;
    }
    if (built.kind === 'unequal') return UNSETTLED_RETRY_MS;
  }
  metrics.periodsLeft.set(labels, rest.length);
  if (next !== undefined && rest.length > 0) {
    // audit results are of the serving version only: nothing else writes this row
    await writeRollup(clickhouse, { ...rollup, built_from: next.start, covered_from: coveredFrom(next.start) });
    logger.info({ ...labels, built_from: isoTime(next.start), periods_left: rest.length }, 'rollup_build_progress');
  } else {
    await writeRollup(clickhouse, { ...rollup, state: 'serving', built_from: 0, covered_from: 0 });
    logger.info(labels, 'rollup_complete');
  }
  await publish(workshop);
  return 0;
}

const UNSETTLED_RETRY_MS = 5_000;
