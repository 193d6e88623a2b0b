import { keepToOwner } from '../config/data-folder.ts';
import { StartError } from '../errors.ts';
import type { Logger } from '../logger.ts';
import { endProcess } from './end-process.ts';

/** A part of a process. Parts are stopped in the reverse order of their start. */
export interface Part {
  readonly name: string;
  /** ends in order: nothing lost, nothing doubled */
  stop(): Promise<void>;
  /** rejects when the part cannot continue, which ends the process with a non-zero code */
  readonly failed?: Promise<never>;
}

/** The longest time that shutdown takes, milliseconds. Of ten seconds, one is left to end on a busy machine. */
const STOP_DEADLINE_MS = 9_000;
/** Ctrl-C arrives directly and again through npm. Only a signal this much later means "at once", milliseconds. */
const SECOND_SIGNAL_AFTER_MS = 1_000;

/**
 * Runs a service, whose files are private to their owner. `start` builds its parts in data order and hands each to
 * `add` as soon as it runs. Then the process waits for SIGTERM or SIGINT (exit 0), or for a part to fail (exit 1), and
 * stops the parts in reverse order. A signal during the start stops what has started so far. A second signal, more than
 * a second later, exits at once. What has not stopped by the deadline, such as a statement in a native thread, is left
 * behind.
 */
export async function runProcess(
  getLogger: () => Logger | undefined,
  start: (add: (part: Part) => void, stopping: AbortSignal) => Promise<void>,
): Promise<never> {
  keepToOwner();
  const parts: Part[] = [];
  const stopping = new AbortController();
  let firstSignalAt: number | undefined;
  let exitCode = 0;
  let wake: () => void = () => {};
  const ended = new Promise<void>((resolve) => {
    wake = resolve;
  });

  const onSignal = (signal: NodeJS.Signals): void => {
    const now = performance.now();
    if (firstSignalAt !== undefined) {
      if (now - firstSignalAt > SECOND_SIGNAL_AFTER_MS) endProcess(130);
      return;
    }
    firstSignalAt = now;
    getLogger()?.info({ signal }, 'stopping');
    stopping.abort();
    wake();
  };
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);

  const failures = new Set<unknown>();
  const fail = (error: unknown): void => {
    // one error may end several parts
    if (failures.has(error)) return;
    failures.add(error);
    if (exitCode === 0) exitCode = error instanceof StartError ? error.exitCode : 1;
    if (error instanceof StartError) process.stderr.write(`sluice: ${error.message}\n`);
    else {
      const logger = getLogger();
      if (logger === undefined)
        process.stderr.write(`sluice: ${error instanceof Error ? error.stack : String(error)}\n`);
      else logger.fatal({ err: error }, 'failed');
    }
    wake();
  };
  process.on('uncaughtException', fail);
  process.on('unhandledRejection', fail);

  const started = start((part) => {
    parts.push(part);
    part.failed?.catch(fail);
  }, stopping.signal).catch((error: unknown) => {
    if (!stopping.signal.aborted) fail(error);
  });
  await Promise.race([ended, started.then(() => ended)]);

  const deadline = setTimeout(() => {
    getLogger()?.error({ parts: parts.map((p) => p.name) }, 'stop_deadline_passed');
    // a part that does not stop is no failure: the next start completes its work
    endProcess(exitCode);
  }, STOP_DEADLINE_MS);
  await started;
  for (let part = parts.pop(); part !== undefined; part = parts.pop()) {
    try {
      await part.stop();
    } catch (error) {
      fail(error);
    }
  }
  clearTimeout(deadline);
  process.exit(exitCode);
}
