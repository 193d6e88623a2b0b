import { fresh, select, type Reader } from '../../../common/clickhouse/clickhouse.ts';
import type { Clock } from '../../../common/clock.ts';
import { keyOf } from '../../../common/kafka/partition.ts';
import { shared } from './shared-read.ts';
import { statements } from './statements.ts';
import type { Owner } from '../delivery/ports.ts';

/**
 * What was read before is used again for this long. Whoever takes a partition after a claim waits longer before it
 * looks at what is there (take.ts).
 */
const AGE_MS = 2_000;

/** A replica may lag this long before a read of it fails. With AGE_MS it is less than SETTLE_MS (take.ts). */
const LAG_MS = 2_500;

interface Found {
  readonly period: number;
  /** by partition; shard: of the first claim */
  readonly owners: ReadonlyMap<string, { readonly owner: Owner; readonly shard: string }>;
}

interface Seen {
  /** monotonic milliseconds, not later than its statement */
  readonly at: number;
  readonly found: Promise<Found>;
}

type Row = {
  period: number;
  now: number;
  owners: [
    topic: string,
    partition: number,
    group: string,
    epoch: number,
    former: string,
    isSettled: number,
    shard: string,
  ][];
};

/**
 * Reads the register of periods and owners, for all partitions of the process at once. `onClock` hears how far our
 * clock is ahead of the engine's at each read, milliseconds.
 */
export function createRegister(
  clickhouse: Reader,
  clock: Clock,
  onClock: (aheadMs: number) => void,
  monotonic: Clock = () => performance.now(),
) {
  const reader = fresh(clickhouse, ['partition_owners', 'rollup_periods'], LAG_MS);
  const findAnew = shared(find);
  let seen: Seen | undefined;

  return {
    /** `anew`: by a statement that is still to be sent. `shard`: of the first claim; undefined if there is none */
    async read(topic: string, partition: number, anew = false) {
      const at = monotonic();
      if (anew) seen = { at, found: findAnew() };
      else if (seen === undefined || at - seen.at >= AGE_MS) seen = { at, found: find() };
      const mine = seen;
      try {
        const { period, owners } = await mine.found;
        const known = owners.get(keyOf(topic, partition));
        return { period, owner: known?.owner, shard: known?.shard };
      } catch (error) {
        if (seen === mine) seen = undefined;
        throw error;
      }
    },
  };

  async function find(): Promise<Found> {
    const before = clock();
    const [row] = await select<Row>(reader, statements.register);
    onClock((before + clock()) / 2 - row!.now);
    const owners = row!.owners.map(([topic, partition, group, epoch, former, isSettled, shard]) => {
      const owner = { group, epoch, former: former === '' ? undefined : former, isSettled: isSettled === 1 };
      return [keyOf(topic, partition), { owner, shard }] as const;
    });
    return { period: row!.period, owners: new Map(owners) };
  }
}

export type RegisterReader = ReturnType<typeof createRegister>;
