import kafkajs, { type LogEntry } from 'kafkajs';

/** A line of kafkajs as ours: level, and the fields beside the constant name `kafka_client`. */
interface ClientLogLine {
  readonly level: 'error' | 'warn' | 'debug';
  readonly fields: Readonly<Record<string, unknown>>;
}

/**
 * What kafkajs says at ERROR or WARN although it then does what is right: rebalances are ordinary, and an error answer
 * is thrown to whoever asked (nobody asked for a fetch); an idempotent producer that gives up is replaced
 * (acknowledged-producer.ts).
 */
const ordinary =
  /^Response (?!Fetch)|^Limiting retries for the idempotent producer|rebalanc|rejoin|re-joining|REBALANCE_IN_PROGRESS|not the coordinator|is not aware of this member|does not host this topic-partition|no leader for this topic-partition/i;
/** After these the consumer does not go on as it was. */
const serious = /^Crash:|^Error when calling each|^Offset out of range/;

/**
 * kafkajs is chatty (a line at INFO per start, join, pause and resume) and says ERROR for every connection that it
 * tries again.
 * What it says at INFO and below is debug here, its warnings and errors are warnings, what stops the consumer is an
 * error.
 * Of its fields only small ones are taken: some hold whole responses, and messages must not reach the log.
 */
export function clientLogLine(entry: LogEntry): ClientLogLine {
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
  let level: ClientLogLine['level'] = 'debug';
  if (entry.level === kafkajs.logLevel.ERROR && serious.test(detail)) level = 'error';
  else if ((entry.level === kafkajs.logLevel.ERROR || entry.level === kafkajs.logLevel.WARN) && !ordinary.test(text))
    level = 'warn';
  if (level === 'error' && typeof stack === 'string') fields['stack'] = stack;
  return { level, fields };
}
