import { isatty } from 'node:tty';
import { keepToOwner } from '../config/data-folder.ts';
import { StartError } from '../errors.ts';
import type { Logger } from '../logger.ts';
import { endProcess } from './end-process.ts';
import { within } from './within.ts';

/** A component of a process. Components stop in the reverse order of their start. */
export interface Component {
  readonly name: string;
  /** shuts down without losing or doubling anything */
  stop(): Promise<void>;
  /** rejects if the component cannot continue, which ends the process with a non-zero code */
  readonly failed?: Promise<unknown>;
}

/** The longest time that shutdown takes, milliseconds. Of ten seconds, one is left to end on a busy machine. */
const STOP_DEADLINE_MS = 9_000;
/** A start that was interrupted may take this long to end by itself, milliseconds. */
const START_END_MS = 2_000;
/** Ctrl-C arrives directly and again through npm. Only a signal this much later means "at once", milliseconds. */
const SECOND_SIGNAL_AFTER_MS = 1_000;
/** A terminal is closed at most this long after its shell said so, milliseconds. */
const SHELL_ENDS_MS = 1_000;

/**
 * Runs a service, whose files are private to their owner. `start` builds its components in data order and hands
 * each to `add` as soon as it runs. Then the process waits for SIGTERM or SIGINT (exit 0), or for a component to fail
 * (exit 1), and stops the components in reverse order. If its terminal is closed, it stops as after SIGTERM. During the
 * start either one aborts `stopping`, and what has started so far stops, also if the start waits for something that
 * `stopping` does not end. A second signal, more than a second later, exits at once. At the deadline the process ends
 * without components that have not stopped, such as a statement in a native thread.
 */
export async function runProcess(
  getLogger: () => Logger | undefined,
  start: (add: (component: Component) => void, stopping: AbortSignal) => Promise<void>,
): Promise<never> {
  keepToOwner();
  const components: Component[] = [];
  const stopping = new AbortController();
  let firstSignalAt: number | undefined;
  let exitCode = 0;
  const { promise: ended, resolve: wake } = Promise.withResolvers<void>();

  const onSignal = (signal: NodeJS.Signals): void => {
    const now = performance.now();
    if (firstSignalAt !== undefined) {
      if (now - firstSignalAt > SECOND_SIGNAL_AFTER_MS) endProcess(130);
      return;
    }
    firstSignalAt = now;
    getLogger()?.info({ signal }, 'stopping');
    wake();
  };
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);
  // SIGHUP also tells the query service to read its definitions again
  if (isatty(0))
    process.on('SIGHUP', (signal) => {
      const stopIfClosed = (): void => {
        if (!isatty(0) && firstSignalAt === undefined) onSignal(signal);
      };
      stopIfClosed();
      // a shell that ends may send the signal before its terminal is closed
      setTimeout(stopIfClosed, SHELL_ENDS_MS).unref();
    });

  const failures = new Set<unknown>();
  const fail = (error: unknown): void => {
    // one error may end several components
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

  const started = start((component) => {
    components.push(component);
    component.failed?.catch(fail);
  }, stopping.signal).catch((error: unknown) => {
    if (!stopping.signal.aborted) fail(error);
  });
  await ended;
  // a start that still waits ends too, so that what it has begun is stopped
  stopping.abort();

  const deadline = setTimeout(() => {
    getLogger()?.error({ components: components.map((c) => c.name) }, 'stop_deadline_passed');
    // a component that does not stop is no failure: the next start completes its work
    endProcess(exitCode);
  }, STOP_DEADLINE_MS);
  const isStarted = await within(
    START_END_MS,
    started.then(() => true),
    false,
  );
  for (let component = components.pop(); component !== undefined; component = components.pop()) {
    try {
      await component.stop();
    } catch (error) {
      fail(error);
    }
  }
  if (!isStarted) endProcess(exitCode);
  clearTimeout(deadline);
  process.exit(exitCode);
}
