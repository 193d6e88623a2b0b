import type { Clock } from '../../../common/clock.ts';

/**
 * Membership of this process in the consumer group, and with it the right to commit.
 *
 * Kafka refuses a commit only to members of an old generation. A member that lost a partition may still overwrite its
 * commit, and the client stamps a commit with the generation at the moment of the call. So work carries the stint it
 * began in: the time from one rejoin to the next. A commit passes only while stint and assignment are the same, compared
 * right before the call, without an await between.
 * The next stint begins with the answer to JoinGroup, one round trip before the client takes over the new generation.
 * The clock is a monotonic one: a wall clock set back would make an old heartbeat look fresh.
 */
export function createMembership(clock: Clock, sessionTimeoutMs: number) {
  let stint = 0;
  let assigned = new Set<string>();
  let lastHeartbeat = clock();
  let joined = false;

  return {
    get stint() {
      return stint;
    },
    get joined() {
      return joined;
    },
    /** a rebalance began, the consumer stopped or crashed: nothing in flight may commit any more */
    lost(): void {
      stint++;
      assigned = new Set();
      joined = false;
    },
    /** the group was joined: these partitions are ours from here on */
    won(partitions: Iterable<string>): void {
      stint++;
      assigned = new Set(partitions);
      joined = true;
      lastHeartbeat = clock();
    },
    /** The broker has answered a heartbeat. Its session counts from when it was sent, so long before `tookMs`. */
    heartbeat(tookMs = 0): void {
      lastHeartbeat = clock() - tookMs;
    },
    owns(partition: string, inStint: number): boolean {
      return inStint === stint && assigned.has(partition);
    },
    /** false when the group may have given our partitions to another without our knowing it yet */
    isFresh(): boolean {
      const silent = clock() - lastHeartbeat;
      return silent >= 0 && silent < sessionTimeoutMs / 2;
    },
  };
}

export type Membership = ReturnType<typeof createMembership>;

/**
 * The only way to commit. True = the broker took it from us as the partition's owner; false = we are not that any more,
 * or `again` gave up.
 * `send` is called right after the check, so it is stamped with the generation of this stint, or with an older one that
 * the broker refuses.
 */
export async function commitInStint(
  membership: Pick<Membership, 'owns'>,
  partition: string,
  stint: number,
  send: () => Promise<void>,
  again: (attempt: number, error: unknown) => Promise<boolean>,
): Promise<boolean> {
  for (let attempt = 0; ; attempt++) {
    if (!membership.owns(partition, stint)) return false;
    try {
      await send();
      return membership.owns(partition, stint);
    } catch (error) {
      if (!(await again(attempt, error))) return false;
    }
  }
}
