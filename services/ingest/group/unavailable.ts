import { ClickHouseError } from '../../../common/clickhouse/errors.ts';
import { KafkaUnavailable } from '../../../common/kafka/partition.ts';
import type { Service } from '../delivery/ports.ts';

/** Which service an error says is unavailable for now. Undefined: the error ends the process. */
export function unavailable(error: unknown): Service | undefined {
  if (error instanceof KafkaUnavailable) return 'kafka';
  if (typeof error !== 'object' || error === null || !('kind' in error) || error.kind !== 'retry') return undefined;
  return error instanceof ClickHouseError ? 'clickhouse' : 'registry';
}
