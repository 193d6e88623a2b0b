import { ClickHouseError, refusal } from './errors.ts';
import type { StatementSettings } from './clickhouse.ts';

const PENDING = /is killed in pending state/;

/**
 * Runs a read and throws 159 if its answer comes after its own max_execution_time. The engine ends such a read with an
 * error, but once, on an overloaded machine, an answer came without its last block and without an error (not reproduced
 * in 600 reads that ended near their limit). An answer is whole or an error.
 */
export async function withinTimeLimit<T>(settings: StatementSettings, read: () => Promise<T>): Promise<T> {
  const limit = Number(settings['max_execution_time'] ?? 0);
  const started = performance.now();
  const answer = await read().catch((error: unknown) => {
    // 25.8 says so of a read whose time was over before it began: busy servers
    const isLate = limit > 0 && error instanceof ClickHouseError && error.code === 394 && PENDING.test(error.message);
    throw isLate
      ? refusal(159, `Timeout exceeded: the limit of ${limit} seconds was over before the read began`)
      : error;
  });
  if (limit > 0 && performance.now() - started >= limit * 1000)
    throw refusal(159, `Timeout exceeded: the answer came after its limit of ${limit} seconds`);
  return answer;
}
