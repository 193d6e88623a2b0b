import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from '../../logger.ts';
import { ClickHouseError, isUnanswered, refusal } from '../errors.ts';
import { pinnedSettings } from '../pinned-settings.ts';
import { CLOSE_GRACE_MS } from '../pool.ts';
import type { Connection, Request } from './connection.ts';
import type { ServerVersion } from './version.ts';
import { quote } from '../sql.ts';

/** The server, and what its writes depend on. */
export interface Writes {
  readonly connection: Connection;
  readonly server: ServerVersion;
  readonly logger: Logger;
  /** how long a server that cannot be reached is asked to end a write */
  readonly unreachablePatienceMs: number;
  /** ends all writes */
  readonly ended: AbortSignal;
}

/** After this long without an answer, the server may have another version, milliseconds: no replacement takes less. */
const QUIET_MS = 250;
/** How long a killed write may take to end, milliseconds. */
const KILL_PATIENCE_MS = 30_000;

/**
 * One attempt at a write. An abandoned one (no answer and no progress, a broken connection, our own shutdown) is killed
 * by its query_id and awaited, so nothing it does comes after its error, unless the server cannot be asked (then the
 * log says so).
 */
export async function write(
  to: Writes,
  kind: 'write' | 'insert',
  { settings = {}, ...statement }: Request,
  queryIds: readonly string[] = ['sluice'],
): Promise<void> {
  const { connection, server, logger, ended } = to;
  if (performance.now() - connection.lastAnswerAt > QUIET_MS) await server.learn();
  // a character that no id contains stands between them
  const id = [...queryIds, randomUUID()].join('#');
  try {
    await connection.request('write', {
      ...statement,
      settings: { ...pinnedSettings(kind, server.settings), ...settings },
      signal: ended,
      queryId: id,
    });
  } catch (error) {
    // what ClickHouse reports itself has ended, and so has what never reached it
    if (!isUnanswered(error) || error.outcome === 'not_written') throw error;
    try {
      await killAndWait(to, `query_id = ${quote(id)}`, ended.aborted ? CLOSE_GRACE_MS / 2 : KILL_PATIENCE_MS);
    } catch (unknown) {
      logger.warn({ err: unknown, query_id: id }, 'clickhouse_write_may_still_run');
    }
    throw error;
  }
}

/** Kills every attempt at the inserts that have this id among theirs. Resolves when none of them runs, else throws. */
export async function killWrites(to: Writes, queryId: string): Promise<void> {
  await killAndWait(to, `has(splitByChar('#', query_id), ${quote(queryId)})`, KILL_PATIENCE_MS);
}

/**
 * Kills statements of our database with these ids (a condition): another installation may have the same user and the
 * same topics. Resolves when none of them runs, else throws.
 */
async function killAndWait(
  { connection, unreachablePatienceMs }: Writes,
  ids: string,
  patienceMs: number,
): Promise<void> {
  const condition = `current_database = ${quote(connection.database)} AND ${ids}`;
  const since = performance.now();
  for (;;) {
    let failure: unknown;
    try {
      if ((await connection.ask(`SELECT count() FROM system.processes WHERE ${condition}`)) === '0') return;
      // SYNC waits for each; a statement that ignores it for too long is asked about again
      await connection.ask(`KILL QUERY WHERE ${condition} SYNC`).catch((error: unknown) => {
        if (!isUnanswered(error)) throw error;
      });
    } catch (error) {
      failure = error;
    }
    if (failure instanceof ClickHouseError && failure.code !== undefined && failure.kind === 'fatal') throw failure;
    // a single server that times out may only be slow, and is asked on; 0 is a cluster's node, of which Keeper knows
    // more
    const isGivenUp = isUnanswered(failure) && (unreachablePatienceMs === 0 || failure.codeName !== 'ETIMEDOUT');
    const most = isGivenUp ? Math.min(patienceMs, unreachablePatienceMs) : patienceMs;
    if (performance.now() - since > most)
      throw failure ?? refusal(159, 'Timeout exceeded: a killed statement has not ended');
    await sleep(100);
  }
}
