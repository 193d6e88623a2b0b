import { setTimeout as sleep } from 'node:timers/promises';
import type { EachBatchPayload } from '../../../common/kafka/client.ts';
import { keyOf, type Place } from '../../../common/kafka/partition.ts';
import { within } from '../../../common/lifecycle/within.ts';
import type { Logger } from '../../../common/logger.ts';
import { commitInStint, type Membership } from './membership.ts';
import type { IngestMetrics } from '../metrics.ts';

const RETRY_MS = 200;
/** Before the first fetch there is no way to send anything; a lane only looks this often whether the process stops. */
const UNFETCHED_RETRY_MS = 1_000;
const NOTHING_FETCHED = new Error('nothing was fetched yet');
/** A stopping process gives up a commit after so many retries. */
const LAST_RETRIES = 5;

/** Sends commits and heartbeats. The client hands out the way to send them with each fetch. */
export function createCommitter(
  membership: Membership,
  isDraining: () => boolean,
  logger: Logger,
  { commitsRefused }: Pick<IngestMetrics, 'commitsRefused'>,
) {
  let client: EachBatchPayload | undefined;
  /** One wait for all lanes. When it is over nothing of it stays in memory: topics may be empty for weeks. */
  let look: { readonly over: Promise<void>; readonly end: () => void } | undefined;

  /** Resolves with the first fetch, or when it is time to look whether the process stops. */
  function nextLook(): Promise<void> {
    if (look === undefined) {
      const { promise, resolve: end } = Promise.withResolvers<void>();
      const over = within(UNFETCHED_RETRY_MS, promise, undefined).finally(() => (look = undefined));
      look = { over, end };
    }
    return look.over;
  }

  return {
    fetched(payload: EachBatchPayload): void {
      client = payload;
      look?.end();
    },

    crashed(): void {
      client = undefined;
    },

    heartbeat(): void {
      void client?.heartbeat().catch(() => {});
    },

    /** True: the broker took the commit from us as the partition's owner. False: we no longer are, or the process stops. */
    commit({ topic, partition }: Place, stint: number, offset: number, metadata: string): Promise<boolean> {
      // kafkajs sends the metadata, and its types do not have it
      const of = { partition, offset: String(offset), metadata } as { partition: number; offset: string };
      const offsets = { topics: [{ topic, partitions: [of] }] };
      let refused = 0;
      return commitInStint(
        membership,
        keyOf(topic, partition),
        stint,
        () => client?.commitOffsetsIfNecessary(offsets) ?? Promise.reject(NOTHING_FETCHED),
        async (attempt, error) => {
          if (client !== undefined) {
            refused++;
            commitsRefused.inc();
            const err = error instanceof Error ? error.message : error;
            // a rejoin refuses one or two
            const level = refused === 3 ? 'warn' : 'debug';
            logger[level]({ err, topic, partition, offset, attempts: refused }, 'commit_refused');
          }
          if (isDraining() && (client === undefined || attempt > LAST_RETRIES)) return false;
          await (client === undefined ? nextLook() : sleep(RETRY_MS));
          return true;
        },
      );
    },
  };
}

export type Committer = ReturnType<typeof createCommitter>;
