import { announceCut, buildPeriod, differencesOfMinutes, differencesOfPeriod, untilSettled, type Difference } from './build.ts';
import { readCuts, readRollups, writeRollup, type Rollup } from './catalogue.ts';
import { DAY, floorTo, HOUR, MINUTE, periodOf, periodsBetween, type Period } from './periods.ts';
import { readShape, type Shape } from './shape.ts';
import { isoTime, nowSeconds, type Workshop } from './workshop.ts';

/**
 * Compares serving rollups with the raw tables: closed minutes all the time, by event time, which reads the newest parts only; and every night the periods of
 * the last days, by stamp, which finds what came late.
 *
 * What differs is suspected, because the raw table and the views are written one after the other; what differs again after a while is a difference: it is
 * logged, counted in the metric and in the catalogue, and its periods are built anew.
 */
type Scope = { readonly kind: 'minutes'; readonly from: number; readonly to: number } | { readonly kind: 'period'; readonly period: Period };

interface Suspicion {
  readonly rollup: Pick<Rollup, 'name' | 'version'>;
  readonly scope: Scope;
  readonly found: readonly Difference[];
  /** unix milliseconds at which to look again */
  readonly dueAt: number;
  readonly confirmed: boolean;
  readonly repairs: number;
}

/** After downtime, minutes are taken up this far back at most; the night does the rest, seconds. */
const CATCH_UP = HOUR;
/** Hour of the day, UTC, at which the last days are compared. */
const NIGHT_HOUR = 2;
const MAX_REPAIRS = 3;
/** How long a repair waits for unfinished batches of its period, milliseconds. */
const REPAIR_WAIT_MS = 60_000;
const REPAIR_RETRY_MS = 5_000;

export interface Audit {
  /** One round: closed minutes since the last, the last days where it is night, and another look at what is suspected. */
  round(): Promise<void>;
  /** Compares the ended periods of the last days now. */
  compareDays(days: number): Promise<void>;
  readonly suspicions: readonly Suspicion[];
}

/** What is suspected lives in this process; what is confirmed stands in the catalogue, so that a later one looks at it in its first round. */
export function createAudit(workshop: Workshop): Audit {
  const { clickhouse, clock, timing, logger, metrics, settings } = workshop;
  let suspicions: Suspicion[] = [];
  /** the first round is a night where a service before this one left something unmended */
  let nextNight: number | undefined;

  return {
    get suspicions() { return suspicions; },
    compareDays,

    async round() {
      const rollups = await audited();
      nextNight ??= rollups.some((r) => r.differences > 0) ? nowSeconds(workshop) : nightAfter(nowSeconds(workshop));
      for (const rollup of rollups) await compareMinutes(rollup);
      if (nowSeconds(workshop) >= nextNight) {
        nextNight = nightAfter(nowSeconds(workshop));
        await compareDays(settings.ROLLUP_AUDIT_DAYS);
      }
      const due = suspicions.filter((s) => s.dueAt <= clock());
      for (const suspicion of due) await lookAgain(suspicion);
      for (const rollup of rollups) await report(rollup);
    },
  };

  async function audited(): Promise<Rollup[]> {
    return (await readRollups(clickhouse)).filter((r) => r.state === 'serving');
  }

  async function compareMinutes(rollup: Rollup): Promise<void> {
    const to = floorTo((clock() - timing.auditLagMs) / 1000, MINUTE);
    const from = Math.max(rollup.audited_to, to - CATCH_UP);
    if (from >= to) return;
    await compare(rollup, { kind: 'minutes', from, to });
    // written last: what was not compared to its end is compared again
    const now = (await audited()).find((r) => r.name === rollup.name && r.version === rollup.version);
    if (now !== undefined) await writeRollup(clickhouse, { ...now, audited_to: to });
    metrics.auditedTo.set({ rollup: rollup.name }, to);
  }

  async function compareDays(days: number): Promise<void> {
    const now = nowSeconds(workshop);
    const cuts = await readCuts(clickhouse);
    const ended = periodsBetween(floorTo(now, DAY) - days * DAY, now, cuts).filter((p) => untilSettled(p.end, workshop) === 0);
    for (const rollup of await audited()) {
      let found = 0;
      for (const period of ended) found += await compare(rollup, { kind: 'period', period });
      logger.info({ rollup: rollup.name, periods: ended.length, suspected: found }, 'rollup_days_compared');
    }
  }

  async function compare(rollup: Rollup, scope: Scope): Promise<number> {
    const found = await look(rollup, scope);
    if (found.length > 0) suspicions.push({ rollup, scope, found, dueAt: clock() + timing.confirmMs, confirmed: false, repairs: 0 });
    return found.length;
  }

  async function look(rollup: Rollup, scope: Scope): Promise<Difference[]> {
    const since = performance.now();
    const shape = await readShape(clickhouse, rollup);
    const found = scope.kind === 'period' ? await differencesOfPeriod(workshop, shape, scope.period) : await inMinutes(shape, scope);
    metrics.auditSeconds.inc({ rollup: rollup.name }, (performance.now() - since) / 1000);
    return found;
  }

  /** Each tier in the buckets of its own width that end within the minutes. */
  async function inMinutes(shape: Shape, { from, to }: { from: number; to: number }): Promise<Difference[]> {
    const found: Difference[] = [];
    for (const tier of shape.tiers) {
      const [first, last] = [floorTo(from, tier.width), floorTo(to, tier.width)];
      if (first < last) found.push(...(await differencesOfMinutes(workshop, shape, tier, first, last)));
    }
    return found;
  }

  async function lookAgain(suspicion: Suspicion): Promise<void> {
    const rollup = (await audited()).find((r) => r.name === suspicion.rollup.name && r.version === suspicion.rollup.version);
    suspicions = suspicions.filter((s) => s !== suspicion);
    if (rollup === undefined) return;
    const isBefore = (d: Difference): boolean => suspicion.found.some((f) => f.table === d.table && f.period === d.period && f.minute === d.minute);
    const again = await look(rollup, suspicion.scope);
    const confirmed = again.filter(isBefore);
    const fresh = again.filter((d) => !isBefore(d));
    if (fresh.length > 0) suspicions.push({ ...suspicion, found: fresh, dueAt: clock() + timing.confirmMs, confirmed: false, repairs: 0 });
    if (confirmed.length === 0) return;
    const first = confirmed[0]!;
    logger.error({ rollup: rollup.name, differences: confirmed.length, table: first.table, period: isoTime(first.period), first: isoTime(first.minute) }, 'rollup_differs');
    let held: Suspicion = { ...suspicion, found: confirmed, dueAt: clock() + timing.confirmMs, confirmed: true };
    suspicions.push(held);
    await report(rollup);
    if (suspicion.repairs >= MAX_REPAIRS) return;
    const periods = new Set(confirmed.map((d) => d.period));
    const outcome = await rebuild(workshop, rollup, [...periods], REPAIR_WAIT_MS);
    metrics.repairs.inc({ rollup: rollup.name }, outcome.built);
    const left = (await look(rollup, suspicion.scope)).filter(isBefore);
    suspicions = suspicions.filter((s) => s !== held);
    if (left.length > 0) {
      held = { ...held, found: left, repairs: suspicion.repairs + 1 };
      suspicions.push(held);
      if (held.repairs === MAX_REPAIRS) logger.error({ rollup: rollup.name, differences: left.length }, 'rollup_not_mended');
    } else logger.info({ rollup: rollup.name, periods: periods.size }, 'rollup_mended');
  }

  /** Counts what is confirmed, for the metric and for whoever reads the catalogue. */
  async function report(rollup: Rollup): Promise<void> {
    const confirmed = suspicions.filter((s) => s.confirmed && s.rollup.name === rollup.name).flatMap((s) => s.found);
    metrics.differences.set({ rollup: rollup.name }, confirmed.length);
    const now = (await audited()).find((r) => r.name === rollup.name && r.version === rollup.version);
    if (now === undefined || now.differences === confirmed.length) return;
    await writeRollup(clickhouse, { ...now, differences: confirmed.length, differs_from: confirmed.length === 0 ? null : Math.min(...confirmed.map((d) => d.minute)) });
  }
}

function nightAfter(now: number): number {
  const tonight = floorTo(now, DAY) + NIGHT_HOUR * HOUR;
  return tonight > now ? tonight : tonight + DAY;
}

/**
 * Builds periods of a rollup anew, given by their starts. A period that is still going on is cut first, so that what is in it by then can be built.
 * Waits up to `patienceMs` for unfinished batches of a period. Gives how many were built, and the starts of those that were not.
 */
export async function rebuild(workshop: Workshop, rollup: Rollup, starts: readonly number[], patienceMs: number): Promise<{ built: number; left: number[] }> {
  const { clickhouse, clock, wait } = workshop;
  let periods = starts.map(periodIn(await readCuts(clickhouse)));
  if (periods.some((p) => p.end > nowSeconds(workshop))) {
    await announceCut(workshop);
    periods = starts.map(periodIn(await readCuts(clickhouse)));
  }
  let built = 0;
  const left: number[] = [];
  for (const period of periods.toSorted((a, b) => b.start - a.start)) {
    for (let ms = untilSettled(period.end, workshop); ms > 0; ms = untilSettled(period.end, workshop)) await wait(ms);
    const until = clock() + patienceMs;
    let outcome = await buildPeriod(workshop, rollup, period);
    while (outcome.kind === 'unsettled' && clock() < until) {
      await wait(REPAIR_RETRY_MS);
      outcome = await buildPeriod(workshop, rollup, period);
    }
    if (outcome.kind === 'built') built++;
    else left.push(period.start);
  }
  return { built, left };
}

const periodIn = (cuts: readonly number[]) => (start: number): Period => periodOf(start, cuts);
