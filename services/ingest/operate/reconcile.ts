import { setTimeout as sleep } from 'node:timers/promises';
import { fresh, select, shardsOf, type ClickHouse, type Reader } from '../../../common/clickhouse/clickhouse.ts';
import { LEDGER_DAYS } from '../../../common/ledger-days.ts';
import { sources } from '../../../common/sources.ts';
import { statements } from '../store/statements.ts';

/** The account of one partition in one life of its topic; counts of offsets. */
interface PartitionAccount {
  readonly topic: string;
  readonly incarnation: number;
  readonly partition: number;
  /** first and last offset in the ledger */
  readonly first: number;
  readonly last: number;
  /** = stored + dead_lettered + skipped where it holds */
  readonly consumed: number;
  readonly stored: number;
  readonly dead_lettered: number;
  /** null values, offsets without a record, and the gap */
  readonly skipped: number;
  /** offsets that were gone from Kafka before they were taken */
  readonly gap: number;
  /** dead letters that are rows now */
  readonly replayed: number;
}

export interface Reconciliation {
  readonly ok: boolean;
  readonly partitions: readonly PartitionAccount[];
  /** one sentence each, the first range of every partition where it does not hold */
  readonly faults: readonly string[];
}

type AccountRow = PartitionAccount & {
  readonly faults: number;
  readonly first_fault: string;
  readonly first_fault_first: number;
  readonly first_fault_last: number;
};
type Place = Pick<PartitionAccount, 'topic' | 'incarnation' | 'partition'>;
type UnaccountedRow = Place & Pick<PartitionAccount, 'first' | 'last'> & { readonly rows: number };

/** What an account reads. */
export const LEDGER_AND_ROWS = [
  'batches',
  'dead_letters',
  'dead_letter_replays',
  'expired_days',
  ...sources.map((s) => s.name),
];
/** How long a batch in flight may take to reach the ledger before its rows count as a fault, milliseconds. */
const IN_FLIGHT_MS = 30_000;
const RETRY_MS = 500;
const DAY_MS = 86_400_000;

/** Returns unix milliseconds. Of batches written before, ledger rows and dead letters may have expired. */
export function ledgerKeptSince(): number {
  return Date.now() - (LEDGER_DAYS - 1) * DAY_MS;
}

/** The end of a fault of rows that no batch of the ledger has. */
const ORPHANS = 'rows belong to no batch of the ledger';
/** In faults of what was killed: ingest completes it. The second one is of reconcile.sql. */
export const UNFINISHED = [ORPHANS, 'the replay of a dead letter is not done'];

/**
 * Proves from the tables and the ledger, per topic and partition and from the first offset in the ledger:
 * consumed = stored + dead_lettered + skipped, no offset twice within one life of the topic, none missing. Batches that
 * hold events older than the raw retention, or than a shorter one of before, are compared by the ledger only. So are
 * batches whose dead letters may have expired. While ingest runs, a difference counts when it is still there after half
 * a minute (`patienceMs`): the ledger's row of a batch follows its rows.
 */
export async function reconcile(
  clickhouse: Pick<ClickHouse, 'read' | 'shards'>,
  retentionDays: number,
  patienceMs: number = IN_FLIGHT_MS,
): Promise<Reconciliation> {
  const until = Date.now() + patienceMs;
  for (;;) {
    const result = together(
      await Promise.all(shardsOf(clickhouse).map((of) => account(fresh(of, LEDGER_AND_ROWS), retentionDays))),
    );
    if (result.ok || Date.now() >= until) return result;
    await sleep(RETRY_MS);
  }
}

/** The accounts of all shards. No partition may be on two of them. */
function together(shards: readonly Reconciliation[]): Reconciliation {
  const partitions = shards.flatMap((s) => s.partitions);
  const seen = new Set<string>();
  const twice = partitions.map(placeOf).filter((place) => seen.size === seen.add(place).size);
  const faults = [...shards.flatMap((s) => s.faults), ...twice.map((place) => `${place}: is on several shards`)];
  return { ok: faults.length === 0, partitions, faults };
}

async function account(clickhouse: Reader, retentionDays: number): Promise<Reconciliation> {
  const settings = { max_bytes_before_external_group_by: 200_000_000, join_use_nulls: 1 };
  // a day more: whole parts are dropped, by day
  const cutoff = (Date.now() - (retentionDays - 1) * DAY_MS) * 1000;
  const kept_since = ledgerKeptSince();
  const accounts = await select<AccountRow>(clickhouse, statements.reconcile, { cutoff, kept_since }, settings);
  const unaccounted = await select<UnaccountedRow>(clickhouse, statements.unaccounted, { kept_since }, settings);
  const faults: string[] = [];
  const partitions = accounts.map((row): PartitionAccount => {
    const { faults: ranges, first_fault: fault, first_fault_first: first, first_fault_last: last, ...counts } = row;
    const place = placeOf(row);
    if (fault !== '')
      faults.push(`${place}: offsets ${first} to ${last}: ${fault}${ranges > 1 ? ` (${ranges} ranges in all)` : ''}`);
    else if (row.consumed !== row.stored + row.dead_lettered + row.skipped)
      faults.push(`${place}: the sums do not agree`);
    return counts;
  });
  for (const row of unaccounted)
    faults.push(`${placeOf(row)}: offsets ${row.first} to ${row.last}: ${row.rows} ${ORPHANS}`);
  return { ok: faults.length === 0, partitions, faults };
}

function placeOf({ topic, incarnation, partition }: Place): string {
  return `${topic} incarnation ${incarnation} partition ${partition}`;
}
