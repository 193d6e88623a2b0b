import { openSync, writeSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pino, type DestinationStream, type Logger } from 'pino';

export type { Logger };

/**
 * Writes structured log lines to stderr (stdout belongs to the answers of commands). Event names are constant
 * snake_case, and everything variable is a field: `log.info({ topic, partition }, 'partition_taken')`.
 */
export function createLogger(level: string, stream: DestinationStream = logStream(process.stdout.isTTY)): Logger {
  return pino({ level, base: null, timestamp: pino.stdTimeFunctions.isoTime }, stream);
}

/** Returns the stream for stderr: short lines for people if stdout is a terminal, else JSON lines. */
export function logStream(isTerminal: boolean, destination: number | string = 2): DestinationStream {
  const stream = unfailing(typeof destination === 'number' ? destination : openSync(destination, 'a'));
  if (!isTerminal) return stream;
  // loaded only here, because a service in production does not need its fourteen packages
  const { prettyFactory } = createRequire(import.meta.url)('pino-pretty') as typeof import('pino-pretty');
  const format = prettyFactory({ translateTime: 'SYS:HH:MM:ss', singleLine: true });
  return { write: (line) => stream.write(format(line)) };
}

/** How often a full pipe is tried without progress, and the milliseconds between two tries. */
const [PIPE_TRIES, PIPE_WAIT_MS] = [20, 10];

/**
 * Writes each line at once. A line that cannot be written is lost, and does not fail its caller: pino's own destination
 * throws there on a full disk, and pino-pretty's on a closed terminal.
 */
function unfailing(file: number): DestinationStream {
  const waiting = new Int32Array(new SharedArrayBuffer(4));
  return {
    write(line) {
      const bytes = Buffer.from(line);
      for (let at = 0, tries = 0; at < bytes.length && tries < PIPE_TRIES;) {
        try {
          at += writeSync(file, bytes, at);
          tries = 0;
        } catch (error) {
          if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') return;
          tries++;
          Atomics.wait(waiting, 0, 0, PIPE_WAIT_MS);
        }
      }
    },
  };
}
