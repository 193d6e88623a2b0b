import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from '../../logger.ts';
import { abandoned, ClickHouseError, refusal } from '../errors.ts';
import { pinnedSettings } from '../pinned-settings.ts';
import { CLOSE_GRACE_MS } from '../pool.ts';
import { hasFired, PROGRESS, type Connection, type Request } from './connection.ts';
import type { ServerVersion } from './version.ts';
import { quote } from '../sql.ts';

interface WritesOptions {
  readonly connection: Connection;
  readonly server: ServerVersion;
  readonly logger: Logger;
  /** the server is asked about a write as often as this */
  readonly requestTimeoutMs: number;
  /** how long a server that cannot be reached is asked to end a write */
  readonly unreachablePatienceMs: number;
  /** ends all writes */
  readonly ended: AbortSignal;
}

/** After this long without an answer, the server may have another version, milliseconds: no replacement takes less. */
const QUIET_MS = 250;
/** A write is abandoned after this many questions that found no progress. */
const STALLED_TIMES = 10;
/** How long a killed write may take to end, milliseconds. */
const KILL_PATIENCE_MS = 30_000;
/** How long an answer may still be in transit after the server no longer knows the write, milliseconds. */
const ANSWER_GRACE_MS = 1_000;

/**
 * Writes take as long as the server works on them: it is asked whether it still does, and about its progress. An
 * abandoned write (no answer and no progress, a broken connection, our own shutdown) is killed by its query_id and
 * awaited, so nothing it does comes after its error.
 */
export function createWrites(options: WritesOptions) {
  const { connection, server, logger, ended } = options;
  return {
    write,
    /** Kills every attempt at the inserts that have this id among theirs. Resolves when none of them runs, else throws. */
    kill: (queryId: string): Promise<void> =>
      killAndWait(options, `has(splitByChar('#', query_id), ${quote(queryId)})`),
  };

  /** One attempt at a write. It has ended when it settles, unless the server cannot be asked (then it logs so). */
  async function write(
    kind: 'write' | 'insert',
    { settings = {}, ...statement }: Request,
    queryIds: readonly string[] = ['sluice'],
  ): Promise<void> {
    if (performance.now() - connection.lastAnswerAt > QUIET_MS) await server.learn();
    // a character that no id contains stands between them
    const id = [...queryIds, randomUUID()].join('#');
    const over = new AbortController();
    const givenUp = new AbortController();
    const watching = watch(options, id, over.signal, (reason) => givenUp.abort(reason));
    try {
      await connection.request('write', {
        ...statement,
        settings: { ...pinnedSettings(kind, server.settings), ...settings },
        signal: AbortSignal.any([ended, givenUp.signal]),
        queryId: id,
      });
    } catch (error) {
      if (!(error instanceof ClickHouseError)) throw error;
      const failure = hasFired(givenUp.signal) ? abandoned('ETIMEDOUT', String(givenUp.signal.reason)) : error;
      // what ClickHouse reports itself has ended, and so has what never reached it
      if (error.code !== undefined || failure.outcome === 'not_written') throw failure;
      try {
        await killAndWait(options, `query_id = ${quote(id)}`, hasFired(ended) ? CLOSE_GRACE_MS / 2 : KILL_PATIENCE_MS);
      } catch (unknown) {
        logger.warn({ err: unknown, query_id: id }, 'clickhouse_write_may_still_run');
      }
      throw failure;
    } finally {
      over.abort();
      await watching;
    }
  }
}

/**
 * Asks the server about a write from time to time until `over` fires. Before that it may abandon it, with the reason.
 */
async function watch(
  { connection, logger, requestTimeoutMs }: WritesOptions,
  id: string,
  over: AbortSignal,
  giveUp: (reason: string) => void,
): Promise<void> {
  let lastProgress: string | undefined;
  let stalled = 0;
  let unanswered = 0;
  for (;;) {
    if (!(await slept(requestTimeoutMs, over))) return;
    let progress: string;
    try {
      progress = await connection.ask(`${PROGRESS}${quote(id)}`);
      unanswered = 0;
    } catch (error) {
      // a server that refuses the question is there
      unanswered = isUnanswered(error) ? unanswered + 1 : 0;
      if (unanswered < 2) continue;
      giveUp('Timeout: the server no longer answers');
      return;
    }
    if (progress === '') {
      if (await slept(ANSWER_GRACE_MS, over)) giveUp('Timeout: no answer, and the server does not run the statement');
      return;
    }
    stalled = progress === lastProgress ? stalled + 1 : 0;
    lastProgress = progress;
    if (stalled >= STALLED_TIMES) {
      giveUp('Timeout: the statement makes no progress');
      return;
    }
    logger.debug({ query_id: id, progress }, 'clickhouse_write_running');
  }
}

/**
 * Kills statements of our database with these ids (a condition): another installation may have the same user and the
 * same topics. Resolves when none of them runs, else throws.
 */
async function killAndWait(
  { connection, unreachablePatienceMs }: WritesOptions,
  ids: string,
  patienceMs = KILL_PATIENCE_MS,
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
    // a single server that is only slow gets its KILL; of a cluster's node, Keeper knows more
    const isGivenUp = isUnanswered(failure) && (unreachablePatienceMs === 0 || failure.codeName !== 'ETIMEDOUT');
    const most = isGivenUp ? Math.min(patienceMs, unreachablePatienceMs) : patienceMs;
    if (performance.now() - since > most)
      throw failure ?? refusal(159, 'Timeout exceeded: a killed statement has not ended');
    await sleep(100);
  }
}

function isUnanswered(error: unknown): error is ClickHouseError {
  return error instanceof ClickHouseError && error.code === undefined;
}

/** Waits. False if `over` fired meanwhile. */
async function slept(ms: number, over: AbortSignal): Promise<boolean> {
  return await sleep(ms, true, { signal: over, ref: false }).catch(() => false);
}
