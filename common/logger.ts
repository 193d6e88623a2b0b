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
  if (!isTerminal) return pino.destination({ dest: destination, sync: true });
  // loaded only here, because a service in production does not need its fourteen packages
  const pretty = createRequire(import.meta.url)('pino-pretty') as (options: object) => DestinationStream;
  return pretty({ destination, sync: true, translateTime: 'SYS:HH:MM:ss', singleLine: true });
}
