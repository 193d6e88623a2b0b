import { setTimeout as sleep } from 'node:timers/promises';
import type { EachBatchPayload } from '../../common/kafka/client.ts';
import type { Place } from '../../common/kafka/partition.ts';
import type { Logger } from '../../common/logger.ts';
import { commitInEpoch, keyOf, type Membership } from './membership.ts';
import type { IngestMetrics } from './metrics.ts';

const RETRY_MS = 200;
/** A stopping process gives up a commit after so many retries. */
const LAST_RETRIES = 5;

/** Sends commits and heartbeats. The client hands out the way to send them with each fetch. */
export class Committer {
  #client: Pick<EachBatchPayload, 'commitOffsetsIfNecessary' | 'heartbeat'> | undefined;
  readonly #membership: Membership;
  readonly #isDraining: () => boolean;
  readonly #logger: Logger;
  readonly #metrics: Pick<IngestMetrics, 'commitsRefused'>;

  constructor(
    membership: Membership,
    isDraining: () => boolean,
    logger: Logger,
    metrics: Pick<IngestMetrics, 'commitsRefused'>,
  ) {
    this.#membership = membership;
    this.#isDraining = isDraining;
    this.#logger = logger;
    this.#metrics = metrics;
  }

  fetched(payload: EachBatchPayload): void {
    this.#client = payload;
  }

  crashed(): void {
    this.#client = undefined;
  }

  heartbeat(): void {
    void this.#client?.heartbeat().catch(() => {});
  }

  /** True: the broker took the commit from us as the partition's owner. False: we no longer are, or the process stops. */
  commit({ topic, partition }: Place, epoch: number, offset: number, metadata: string): Promise<boolean> {
    // kafkajs sends the metadata, and its types do not have it
    const of = { partition, offset: String(offset), metadata } as { partition: number; offset: string };
    const offsets = { topics: [{ topic, partitions: [of] }] };
    let refused = 0;
    return commitInEpoch(
      this.#membership,
      keyOf(topic, partition),
      epoch,
      () => this.#client?.commitOffsetsIfNecessary(offsets) ?? Promise.reject(new Error('nothing was fetched yet')),
      async (attempt, error) => {
        if (this.#client !== undefined) {
          refused++;
          this.#metrics.commitsRefused.inc();
          const err = error instanceof Error ? error.message : error;
          // a rejoin refuses one or two
          this.#logger[refused === 3 ? 'warn' : 'debug'](
            { err, topic, partition, offset, attempts: refused },
            'commit_refused',
          );
        }
        if (this.#isDraining() && (this.#client === undefined || attempt > LAST_RETRIES)) return false;
        await sleep(RETRY_MS);
        return true;
      },
    );
  }
}
