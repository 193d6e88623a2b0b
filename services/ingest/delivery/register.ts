import { fresh, select, type Reader } from '../../../common/clickhouse/clickhouse.ts';
import type { Clock } from '../../../common/clock.ts';
import { statements } from '../statements.ts';
import type { Owner, Register } from './ports.ts';

/**
 * What was read before is used again for this long. Whoever takes a partition after a claim waits longer before it
 * looks at what is there (lane.ts).
 */
const AGE_MS = 2_000;

/** In a cluster: with the age it is less than a claim takes to hold (SETTLE_MS of take.ts). */
const LAG_MS = 2_500;

export interface RegisterReader {
  /** `fresh`: read now, in any case */
  read(topic: string, partition: number, fresh?: boolean): Promise<Register>;
  /** The next read is a fresh one. */
  forget(): void;
}

type Row = {
  period: number;
  now: string;
  owners: [topic: string, partition: number, group: string, epoch: string, former: string, isSettled: number][];
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
        readonly found: Promise<Pick<Register, 'period'> & { readonly owners: ReadonlyMap<string, Owner> }>;
      }
    | undefined;

  return {
    async read(topic, partition, fresh = false) {
      const now = monotonic();
      if (seen === undefined || fresh || now - seen.at >= AGE_MS) seen = { at: now, found: find() };
      const mine = seen;
      try {
        const { period, owners } = await mine.found;
        return { period, owner: owners.get(`${topic}:${partition}`) };
      } catch (error) {
        if (seen === mine) seen = undefined;
        throw error;
      }
    },
    forget: () => {
      seen = undefined;
    },
  };

  async function find(): Promise<{ period: number; owners: ReadonlyMap<string, Owner> }> {
    const before = clock();
    const [row] = await select<Row>(reader, statements.register);
    onClock((before + clock()) / 2 - Number(row!.now));
    return {
      period: row!.period,
      owners: new Map(
        row!.owners.map(([topic, partition, group, epoch, former, isSettled]) => [
          `${topic}:${partition}`,
          { group, epoch: Number(epoch), former: former === '' ? undefined : former, isSettled: isSettled === 1 },
        ]),
      ),
    };
  }
}
