import { createRequire } from 'node:module';
import { pino, type DestinationStream, type Logger } from 'pino';

export type { Logger };

/**
 * Structured log lines on stderr (stdout belongs to what a command answers).
 * Event names are constant snake_case, everything variable is a field: `log.info({ topic, partition },
 * 'partition_taken')`.
 */
export function createLogger(level: string, stream: DestinationStream = logStream(process.stdout.isTTY)): Logger {
  return pino({ level, base: null, timestamp: pino.stdTimeFunctions.isoTime }, stream);
}

/** stderr: short lines for people where stdout is a terminal, else JSON lines. */
export function logStream(isTerminal: boolean, destination: number | string = 2): DestinationStream {
  if (!isTerminal) return pino.destination({ dest: destination, sync: true });
  // loaded only here: a service in production does without its fourteen packages
  const pretty = createRequire(import.meta.url)('pino-pretty') as (options: object) => DestinationStream;
  return pretty({ destination, sync: true, translateTime: 'SYS:HH:MM:ss', singleLine: true });
}
