import { readFileSync } from 'node:fs';
import { select, shardsOf, type ClickHouse, type Param } from '../../common/clickhouse/clickhouse.ts';
import { ClickHouseError } from '../../common/clickhouse/errors.ts';
import { stepOf, type History } from './history.ts';
import { HISTORY_STEPS, STEP_SECONDS, type DeadLetterTotal, type PausedPartition, type RollupStatus } from './wire.ts';

const statement = (name: string): string => readFileSync(new URL(`sql/${name}.sql`, import.meta.url), 'utf8');
const TRAFFIC = statement('traffic');
const LETTERS = statement('letters');
const TOTALS = statement('letter_totals');
const PAUSED = statement('paused');
const ROLLUPS = statement('rollups');
const PARTS = statement('parts');

/** Limits of one sample; ClickHouse ends a statement that takes longer. */
const LIMITS = { max_execution_time: 5, max_threads: 1 } as const;
/**
 * The last steps are read again. Rows of older ones appear only if our clock is ahead of ClickHouse's, or if a replica
 * gets them late: so the whole hour is read again every minute.
 */
const TAIL_STEPS = 2;
const WHOLE_EVERY_MS = 60_000;
const SLOW_FACTS_EVERY_MS = 10_000;
/** Totals read whole tables, so they get at most one part in this many of the time. */
const TOTALS_SHARE = 50;
const TOTALS_EVERY_MS = 2_000;

interface StoreFacts {
  readonly sources: Map<string, string>;
  /** null until they were read once */
  totals: readonly DeadLetterTotal[] | null;
  paused: readonly PausedPartition[];
  rollups: readonly CataloguedRollup[];
}

/** A rollup as the catalogue has it. */
type CataloguedRollup = Omit<RollupStatus, 'audited_to'>;

interface Traffic {
  readonly at: number;
  readonly topic: string;
  readonly source: string;
  readonly events: number;
  readonly bad: number;
  readonly newest_ms: number;
  readonly delay_ms: number;
}

/** Returns whether less than `ms` have passed since `at`. A clock that was set back says nothing of that. */
export const isWithin = (ms: number, at: number, now: number): boolean => now >= at && now - at < ms;

/**
 * Samples ClickHouse for the last hour, whichever process ingested it: the ledger, dead letters, pauses, rollups. It
 * reads only while somebody looks.
 */
export function createStoreSamples(clickhouse: Pick<ClickHouse, 'read' | 'shards'>, history: History) {
  let slowAt = Number.NEGATIVE_INFINITY;
  let totalsAt = Number.NEGATIVE_INFINITY;
  let totalsEveryMs = TOTALS_EVERY_MS;
  /** first step that has not been read yet */
  let unread = 0;
  let wholeAt = Number.NEGATIVE_INFINITY;
  const facts: StoreFacts = { sources: new Map(), totals: null, paused: [], rollups: [] };

  const read = <T>(sql: string, params: Readonly<Record<string, Param>> = {}): Promise<T[]> =>
    select<T>(clickhouse, sql, params, LIMITS);

  async function readTraffic(now: number): Promise<void> {
    const step = stepOf(now);
    const isWhole = unread === 0 || !isWithin(WHOLE_EVERY_MS, wholeAt, now);
    // if it takes too long, the next sample reads the last steps all the same
    if (isWhole) wholeAt = now;
    const first = Math.max(step - HISTORY_STEPS, isWhole ? 0 : Math.min(unread, step) - TAIL_STEPS);
    const from = first * STEP_SECONDS;
    const [traffic, letters] = await Promise.all([
      read<Traffic>(TRAFFIC, { step: STEP_SECONDS, from }),
      read<{ at: number; reason: string; letters: number }>(LETTERS, { step: STEP_SECONDS, from }),
    ]);
    for (const prefix of ['events', 'bad', 'newest', 'delay', 'letters']) history.clearFrom(first, `${prefix}:`);
    for (const { at, topic, source, events, bad, newest_ms: newest, delay_ms: delay } of traffic) {
      facts.sources.set(topic, source);
      history.set(`events:${topic}`, at, events);
      history.set(`bad:${topic}`, at, bad);
      if (newest < 0) continue; // records without a time
      history.set(`newest:${topic}`, at, newest);
      history.set(`delay:${topic}`, at, Math.max(0, delay) / 1000);
    }
    for (const { at, reason, letters: count } of letters) history.set(`letters:${reason}`, at, count);
    unread = step;
  }

  async function readSlowFacts(now: number): Promise<void> {
    if (isWithin(SLOW_FACTS_EVERY_MS, slowAt, now)) return;
    const [found, parts] = await Promise.all([
      read<CataloguedRollup>(ROLLUPS),
      Promise.all(shardsOf(clickhouse).map((of) => select<{ table: string; parts: number }>(of, PARTS, {}, LIMITS))),
    ]);
    const step = stepOf(now);
    facts.rollups = found;
    for (const { name, state, differences } of found)
      if (state === 'serving') history.set(`differs:${name}`, step, differences);
    for (const [table, of] of Map.groupBy(parts.flat(), (p) => p.table))
      history.set(`parts:${table}`, step, Math.max(...of.map((p) => p.parts)));
    slowAt = now;
  }

  async function readPaused(now: number): Promise<void> {
    facts.paused = await read<PausedPartition>(PAUSED);
    const step = stepOf(now);
    // pauses that have ended too, whose last known value says that they are paused
    for (const subject of history.subjects('paused', step - HISTORY_STEPS, step))
      history.set(`paused:${subject}`, step, 0);
    for (const { topic, partition } of facts.paused) history.set(`paused:${topic} partition ${partition}`, step, 1);
  }

  async function readTotals(now: number): Promise<void> {
    if (isWithin(totalsEveryMs, totalsAt, now)) return;
    const started = performance.now();
    try {
      facts.totals = await read<DeadLetterTotal>(TOTALS);
    } catch (error) {
      // too many letters for the time that a sample may take: the last totals stay
      if (!(error instanceof ClickHouseError) || error.codeName !== 'TIMEOUT_EXCEEDED') throw error;
    } finally {
      totalsAt = now;
      totalsEveryMs = Math.max(TOTALS_EVERY_MS, (performance.now() - started) * TOTALS_SHARE);
    }
  }

  return {
    /** Brings the history and the facts up to date. Throws ClickHouseError. */
    async refresh(now: number): Promise<void> {
      await Promise.all([readTraffic(now), readSlowFacts(now), readPaused(now), readTotals(now)]);
    },
    facts: facts as Readonly<StoreFacts>,
  };
}
