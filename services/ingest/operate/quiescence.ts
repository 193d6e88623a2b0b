import { fresh, select, shardsOf, type ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import { StartError } from '../../../common/errors.ts';
import { LEDGER_DAYS } from '../../../common/ledger-days.ts';
import { LEDGER_AND_ROWS, ledgerKeptSince } from './reconcile.ts';
import { statements } from '../store/statements.ts';

/** What the rollup service records: the same on every shard. */
const SHARED = ['rollups', 'rollup_repairs'];

/** What is older is not counted, milliseconds: no copy takes so long that it expires meanwhile. */
const COUNTED_MS = (LEDGER_DAYS / 2) * 86_400_000;

/** What ingest and the rollup service have recorded so far (sql/progress.sql). */
interface Progress {
  /** unix milliseconds */
  readonly counted_since: number;
  readonly batches: number;
  /** unix milliseconds; 0 = nothing was ever ingested */
  readonly last_evaluated_at: number;
  readonly replay_steps: number;
  readonly days_dropped: number;
  readonly rollup_steps: number;
  readonly repairs_done: string;
}

/**
 * Throws StartError unless every row is covered by the ledger, that is: no batch is in flight and none was left half
 * written. Only then do all tables say the same, so that a copy of them can be taken up without the deduplication
 * windows, which are not copied.
 */
export async function assertQuiescent(
  clickhouse: ClickHouse,
  what: string,
  counted_since: number = Date.now() - COUNTED_MS,
): Promise<Progress> {
  const params = { kept_since: ledgerKeptSince() };
  const shards = shardsOf(clickhouse).map((shard) => fresh(shard, [...LEDGER_AND_ROWS, ...SHARED]));
  const open = await Promise.all(
    shards.map((shard) =>
      select<{ topic: string; partition: number; rows: number }>(shard, statements.unaccounted, params),
    ),
  );
  const [first] = open.flat();
  if (first !== undefined) {
    throw new StartError(
      `${what} needs ingest at rest, but ${first.rows} rows of ${first.topic} partition ${first.partition} belong to a batch in flight. If ingest runs, stop it. Otherwise start it, wait until that batch is finished, and stop it.`,
    );
  }
  const progress = await Promise.all(
    shards.map((shard) => select<Progress>(shard, statements.progress, { counted_since })),
  );
  return progress.flat().reduce((all, of) => ({
    ...all,
    batches: all.batches + of.batches,
    replay_steps: all.replay_steps + of.replay_steps,
    days_dropped: all.days_dropped + of.days_dropped,
    last_evaluated_at: Math.max(all.last_evaluated_at, of.last_evaluated_at),
  }));
}

/**
 * Throws StartError where something was recorded since: what was copied meanwhile does not fit together. A rollup that
 * was copied before a repair, and the catalogue or the repairs after it, would lack rows of which nothing says so. So
 * would a raw table that was copied after retention dropped a day, and `expired_days` before it.
 */
export async function assertQuiescentSince(clickhouse: ClickHouse, since: Progress, what: string): Promise<void> {
  const now = await assertQuiescent(clickhouse, what, since.counted_since);
  if (now.batches !== since.batches || now.last_evaluated_at !== since.last_evaluated_at)
    throw new StartError(`${what} is unusable: ingest wrote while it ran. Stop ingest and repeat.`);
  if (now.replay_steps !== since.replay_steps)
    throw new StartError(`${what} is unusable: a dead letter was replayed while it ran. Repeat.`);
  if (now.days_dropped !== since.days_dropped)
    throw new StartError(`${what} is unusable: the rollup service dropped a day while it ran. Repeat.`);
  if (now.rollup_steps !== since.rollup_steps || now.repairs_done !== since.repairs_done)
    throw new StartError(
      `${what} is unusable: the rollup service built something while it ran. Repeat, or stop that service first.`,
    );
}
