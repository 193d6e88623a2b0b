import { pino, type Logger } from 'pino';

export type { Logger };

/**
 * Structured log lines on stderr (stdout belongs to what a command answers).
 * Event names are constant snake_case, everything variable is a field: `log.info({ topic, partition }, 'partition_taken')`.
 */
export function createLogger(level: string): Logger {
  return pino({ level, base: null, timestamp: pino.stdTimeFunctions.isoTime }, pino.destination({ fd: 2, sync: true }));
}
