import { fresh, select, type Reader } from '../../../common/clickhouse/clickhouse.ts';
import type { Clock } from '../../../common/clock.ts';
import { statements } from '../statements.ts';
import type { Owner, Register } from './ports.ts';

/**
 * What was read before is used again for this long. Whoever takes a partition after a claim waits longer before it
 * looks at what is there (take.ts).
 */
const AGE_MS = 2_000;

/** In a cluster: with the age it is less than a claim takes to hold (SETTLE_MS of take.ts). */
const LAG_MS = 2_500;

export interface RegisterReader {
  /** `fresh`: read now, in any case. `shard`: of the first claim; undefined if there is none */
  read(topic: string, partition: number, fresh?: boolean): Promise<Register & { readonly shard: string | undefined }>;
  /** The next read is a fresh one. */
  forget(): void;
}

type Owners = ReadonlyMap<string, { readonly owner: Owner; readonly shard: string }>;

type Row = {
  period: number;
  now: string;
  owners: [
    topic: string,
    partition: number,
    group: string,
    epoch: string,
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
): RegisterReader {
  const reader = fresh(clickhouse, ['partition_owners', 'rollup_periods'], LAG_MS);
  let seen:
    | {
        readonly at: number;
        readonly found: Promise<Pick<Register, 'period'> & { readonly owners: Owners }>;
      }
    | undefined;

  return {
    async read(topic, partition, fresh = false) {
      const now = monotonic();
      if (seen === undefined || fresh || now - seen.at >= AGE_MS) seen = { at: now, found: find() };
      const mine = seen;
      try {
        const { period, owners } = await mine.found;
        const known = owners.get(`${topic}:${partition}`);
        return { period, owner: known?.owner, shard: known?.shard };
      } catch (error) {
        if (seen === mine) seen = undefined;
        throw error;
      }
    },
    forget: () => {
      seen = undefined;
    },
  };

  async function find(): Promise<{ period: number; owners: Owners }> {
    const before = clock();
    const [row] = await select<Row>(reader, statements.register);
    onClock((before + clock()) / 2 - Number(row!.now));
    return {
      period: row!.period,
      owners: new Map(
        row!.owners.map(([topic, partition, group, epoch, former, isSettled, shard]) => [
          `${topic}:${partition}`,
          {
            shard,
            owner: {
              group,
              epoch: Number(epoch),
              former: former === '' ? undefined : former,
              isSettled: isSettled === 1,
            },
          },
        ]),
      ),
    };
  }
}
