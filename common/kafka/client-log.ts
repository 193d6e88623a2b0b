import kafkajs, { type LogEntry } from 'kafkajs';

/**
 * Lines that kafkajs logs as ERROR or WARN although it then behaves correctly. Rebalances are ordinary. Errors in
 * responses are thrown to the caller, except for fetches, which have no caller. An idempotent producer that fails is
 * replaced (acknowledged-producer.ts).
 */
const ordinary =
  /^Response (?!Fetch)|^Limiting retries for the idempotent producer|rebalanc|rejoin|re-joining|REBALANCE_IN_PROGRESS|not the coordinator|is not aware of this member|does not host this topic-partition|no leader for this topic-partition/i;
/** After these lines the consumer does not continue as before. */
const serious = /^Crash:|^Error when calling each|^Offset out of range/;

/**
 * Returns level and fields of the log event `kafka_client` for a line of kafkajs.
 * kafkajs logs each start, join, pause and resume at INFO, and each retried connection at ERROR. Its INFO and below
 * become debug, its warnings and errors become warnings, and what stops the consumer becomes an error.
 * Only small fields are kept: some hold whole responses, and messages must not reach the log.
 */
export function clientLogLine(entry: LogEntry) {
  const { message, stack, ...rest } = entry.log as LogEntry['log'] & { readonly stack?: unknown };
  const detail = typeof message === 'string' ? message : String(message);
  const fields: Record<string, unknown> = { namespace: entry.namespace, detail };
  for (const name of [
    'broker',
    'groupId',
    'topic',
    'partition',
    'offset',
    'error',
    'retryCount',
    'retryTime',
    'memberAssignment',
  ] as const) {
    const value = (rest as Record<string, unknown>)[name];
    if (value !== undefined && value !== null) fields[name] = value instanceof Error ? value.message : value;
  }
  const text = typeof fields['error'] === 'string' ? `${detail} ${fields['error']}` : detail;
  const isError = entry.level === kafkajs.logLevel.ERROR;
  const isWarning = (isError || entry.level === kafkajs.logLevel.WARN) && !ordinary.test(text);
  const level: 'error' | 'warn' | 'debug' = isError && serious.test(detail) ? 'error' : isWarning ? 'warn' : 'debug';
  if (level === 'error' && typeof stack === 'string') fields['stack'] = stack;
  return { level, fields };
}
