import { heldFor, LONGEST_WINDOW_SECONDS, type History } from './history.ts';
import { sectionOf } from './runbook.ts';
import { HISTORY_STEPS, STEP_SECONDS, type AlertStatus } from './wire.ts';

/** What the rules read. */
export interface Facts {
  /** samples of ClickHouse and of this process, which have no series in common */
  readonly history: History;
  /** whether ingest, push, or the rollup service run in this process */
  readonly ingestHere: boolean;
  readonly pushHere: boolean;
  readonly rollupHere: boolean;
}

/**
 * A rule of deploy/prometheus/alerts.yml: it fires when the value of a subject stays above the threshold for
 * `forSeconds`. All thresholds of the console are in this table; alerts.test.ts compares it with the file.
 */
interface Rule {
  readonly alert: string;
  readonly severity: 'page' | 'ticket';
  readonly forSeconds: number;
  /** default: 0 */
  readonly threshold?: number;
  readonly rule: string;
  /** the series `<series>:<subject>` name the subjects */
  readonly series: string;
  /** undefined if unknown for this step; by default the value of the series itself */
  readonly value?: (history: History, subject: string, step: number) => number | undefined;
  readonly show: (value: number) => string;
  /** alerts about its causes: while one of them fires, this one is silent */
  readonly unless?: readonly string[];
  /** why this process cannot tell */
  readonly unknown?: (facts: Facts) => string | undefined;
}

const ELSEWHERE = 'Ingest runs in another process. Prometheus watches this rule there.';
const percent = (share: number): string => `${(share * 100).toFixed(1)} %`;
const seconds = (value: number): string => `${value.toFixed(value < 10 ? 1 : 0)} s`;

/** Returns the sum of a series over the time up to the end of a step. */
function sum(history: History, name: string, step: number, overSeconds: number): number {
  return history.values(name, step - overSeconds / STEP_SECONDS + 1, step, 0).reduce((a, b) => a + b, 0);
}

/** Returns the share of a part in the whole over a time. 0 if the whole is 0. */
const shareOf =
  (part: string, whole: string, overSeconds: number) =>
  (history: History, subject: string, step: number): number => {
    const all = sum(history, `${whole}:${subject}`, step, overSeconds);
    return all === 0 ? 0 : sum(history, `${part}:${subject}`, step, overSeconds) / all;
  };

const onlyIngest = (facts: Facts): string | undefined => (facts.ingestHere ? undefined : ELSEWHERE);
const onlyRollup = (facts: Facts): string | undefined =>
  facts.rollupHere ? undefined : 'The rollup service runs in another process. Prometheus watches this rule there.';

/** If one insert or one query in twenty takes longer than this, they are too slow. */
export const SLOW_INSERT_SECONDS = 5;
export const SLOW_QUERY_SECONDS = 2;
/** A partition with records to take that has not moved for this long is stalled. */
export const STALLED_SECONDS = 600;

const UNREACHABLE = 'SluiceClickHouseUnreachable';
const PAUSED = 'SluicePartitionPaused';

export const rules: readonly Rule[] = [
  {
    alert: UNREACHABLE,
    severity: 'page',
    forSeconds: 120,
    rule: 'this process cannot reach ClickHouse',
    series: 'unreachable',
    show: () => 'does not answer',
  },
  {
    alert: 'SluiceNotConsuming',
    severity: 'page',
    forSeconds: 180,
    rule: 'ingest is no member of its consumer group: nothing is read from Kafka',
    series: 'apart',
    show: () => 'is no member of its group',
    unless: [UNREACHABLE],
    unknown: onlyIngest,
  },
  {
    alert: 'SluiceNotReady',
    severity: 'ticket',
    forSeconds: 600,
    rule: 'a check of /readyz fails, beside those of ClickHouse and the consumer',
    series: 'unready',
    show: () => 'is not ready',
    unless: [UNREACHABLE],
  },
  {
    alert: 'SluiceStalled',
    severity: 'page',
    forSeconds: 300,
    rule: 'a partition cannot be taken, or has records to take and has not moved for 10 minutes',
    series: 'stalled',
    show: () => 'does not move',
    unless: [PAUSED, UNREACHABLE],
    unknown: onlyIngest,
  },
  {
    alert: 'SluiceLag',
    severity: 'page',
    forSeconds: 600,
    threshold: 500_000,
    rule: 'a topic is more than 500,000 records behind',
    series: 'behind',
    show: (value) => `${value.toLocaleString('en')} records behind`,
    unless: [UNREACHABLE],
    unknown: onlyIngest,
  },
  {
    alert: 'SluiceStale',
    severity: 'ticket',
    forSeconds: 600,
    threshold: 60,
    rule: 'what becomes visible of a topic is older than 60 seconds',
    series: 'delay',
    value: (history, subject, step) =>
      sum(history, `events:${subject}`, step, 300) === 0 ? 0 : history.get(`delay:${subject}`, step),
    show: seconds,
  },
  {
    alert: 'SluiceEventsLost',
    severity: 'page',
    forSeconds: 0,
    rule: 'Kafka deleted offsets of a topic in the last half hour, before ingest took them',
    series: 'gone',
    value: (history, topic, step) => sum(history, `gone:${topic}`, step, LONGEST_WINDOW_SECONDS),
    show: (value) => `${value.toLocaleString('en')} offsets`,
    unknown: onlyIngest,
  },
  {
    alert: 'SluiceDeadLetters',
    severity: 'ticket',
    forSeconds: 600,
    threshold: 0.01,
    rule: 'more than 1 % of the events of the last ten minutes are dead letters',
    series: 'events',
    value: shareOf('bad', 'events', 600),
    show: percent,
    unless: [PAUSED],
  },
  {
    alert: PAUSED,
    severity: 'page',
    forSeconds: 0,
    rule: 'a partition is paused because too many of its last messages are dead letters',
    series: 'paused',
    show: () => 'paused',
  },
  {
    alert: 'SluiceInsertsSlow',
    severity: 'ticket',
    forSeconds: 600,
    threshold: 0.05,
    rule: 'one insert in twenty takes longer than 5 seconds',
    series: 'inserts',
    value: shareOf('slow inserts', 'inserts', 600),
    show: (value) => `${percent(value)} of the inserts`,
    unknown: onlyIngest,
  },
  {
    alert: 'SluiceTooManyParts',
    severity: 'page',
    forSeconds: 900,
    threshold: 500,
    rule: 'a partition of a table has more than 500 parts',
    series: 'parts',
    show: (value) => `${value} parts`,
  },
  {
    alert: 'SluiceRollupDiffers',
    severity: 'page',
    forSeconds: 1800,
    rule: 'a rollup differs from its raw table',
    series: 'differs',
    show: (value) => `${value} ${value === 1 ? 'span' : 'spans'} of time`,
  },
  {
    alert: 'SluiceAuditBehind',
    severity: 'ticket',
    forSeconds: 900,
    threshold: 10_800,
    rule: 'a rollup was last compared with its raw table more than 3 hours ago',
    series: 'unaudited',
    show: (value) => `${Math.round(value / 60)} min ago`,
    unless: [UNREACHABLE],
    unknown: onlyRollup,
  },
  {
    alert: 'SluiceRollupSourceIncomplete',
    severity: 'page',
    forSeconds: 300,
    rule: 'a raw table has fewer rows than the ledger counts, or ClickHouse refuses to build from it; its rollup stays as it is',
    series: 'incomplete',
    show: () => 'cannot be rebuilt',
    unknown: onlyRollup,
  },
  {
    alert: 'SluiceClockDiffers',
    severity: 'page',
    forSeconds: 60,
    threshold: 60,
    rule: "the clock of this process differs from ClickHouse's by more than 60 seconds",
    series: 'clock',
    show: seconds,
    unknown: onlyIngest,
  },
  {
    alert: 'SluiceWaitsForGroup',
    severity: 'page',
    forSeconds: 300,
    rule: 'a topic is not ingested: members of another consumer group still have its partitions',
    series: 'waits',
    show: () => 'waits for the other group',
    unknown: onlyIngest,
  },
  {
    alert: 'SluiceCommitsRefused',
    severity: 'ticket',
    forSeconds: 600,
    threshold: 0.5,
    rule: 'Kafka refuses more than one commit in two seconds',
    series: 'refused commits',
    value: (history, subject, step) => sum(history, `refused commits:${subject}`, step, 600) / 600,
    show: (value) => `${value.toFixed(1)} a second`,
    unknown: onlyIngest,
  },
  {
    alert: 'SluiceErrors',
    severity: 'page',
    forSeconds: 300,
    threshold: 0.02,
    rule: 'more than 2 % of the requests of the last five minutes fail',
    series: 'requests',
    value: shareOf('errors', 'requests', 300),
    show: percent,
    unless: [UNREACHABLE],
  },
  {
    alert: 'SluiceCallersBlocked',
    severity: 'ticket',
    forSeconds: 180,
    threshold: 0.02,
    rule: 'more than 2 % of all requests of the last five minutes come from blocked addresses',
    series: 'calls',
    value: shareOf('blocked calls', 'calls', 300),
    show: percent,
  },
  {
    alert: 'SluiceQueriesSlow',
    severity: 'ticket',
    forSeconds: 600,
    threshold: 0.05,
    rule: 'one query in twenty takes longer than 2 seconds',
    series: 'queries',
    value: shareOf('slow queries', 'queries', 600),
    show: (value) => `${percent(value)} of the queries`,
  },
  {
    alert: 'SluiceCacheCold',
    severity: 'ticket',
    forSeconds: 3600,
    threshold: 0.5,
    rule: 'fewer than half of the answers come from the cache, at more than one request a second',
    series: 'cacheable',
    value: (history, subject, step) => {
      const asked = sum(history, `cacheable:${subject}`, step, LONGEST_WINDOW_SECONDS);
      return asked <= LONGEST_WINDOW_SECONDS
        ? 0
        : 1 - sum(history, `hits:${subject}`, step, LONGEST_WINDOW_SECONDS) / asked;
    },
    show: (value) => `${percent(1 - value)} from the cache`,
    unless: [UNREACHABLE],
  },
  {
    alert: 'SluicePushRefused',
    severity: 'page',
    forSeconds: 300,
    threshold: 0.02,
    rule: 'more than 2 % of the pushed requests of the last five minutes are refused',
    series: 'pushes',
    value: shareOf('refused pushes', 'pushes', 300),
    show: percent,
    unless: ['SluiceNotConsuming', 'SluiceCallersBlocked'],
    unknown: ({ pushHere }) => (pushHere ? undefined : 'HTTP push does not run in this process.'),
  },
];

/** What the rules are evaluated on: the facts, and the subjects of each rule within the last hour. */
interface Evaluation {
  readonly facts: Facts;
  readonly oldest: number;
  readonly subjects: ReadonlyMap<Rule, readonly string[]>;
}

/** Returns the state of every rule at the end of a step, firing ones first. */
export function evaluateAlerts(facts: Facts, step: number): AlertStatus[] {
  const order = { firing: 0, pending: 1, unknown: 2, ok: 3 };
  const oldest = step - HISTORY_STEPS + 1;
  const subjects = new Map(rules.map((rule) => [rule, facts.history.subjects(rule.series, oldest, step)]));
  return rules
    .map((rule) => evaluateRule(rule, { facts, oldest, subjects }, step))
    .sort((a, b) => order[a.state] - order[b.state]);
}

function evaluateRule(rule: Rule, evaluation: Evaluation, step: number): AlertStatus {
  const { alert, severity, forSeconds } = rule;
  const common = { alert, severity, rule: rule.rule };
  const reason = rule.unknown?.(evaluation.facts);
  if (reason !== undefined) return { ...common, state: 'unknown', subjects: [], reason };
  const subjects = (evaluation.subjects.get(rule) ?? []).flatMap((name) => {
    const held = heldOf(rule, name, evaluation, step);
    if (held === undefined) return [];
    const state = held.seconds >= forSeconds ? ('firing' as const) : ('pending' as const);
    return [{ name, value: rule.show(held.value), state }];
  });
  if (subjects.length === 0) return { ...common, state: 'ok', subjects };
  const section = sectionOf(alert);
  return {
    ...common,
    state: subjects.some((s) => s.state === 'firing') ? 'firing' : 'pending',
    subjects,
    ...(section !== undefined && { runbook: section }),
  };
}

/** Returns for how long up to a step the rule has held for a subject. Undefined if it does not, or if a cause fires. */
function heldOf(rule: Rule, name: string, evaluation: Evaluation, step: number): ReturnType<typeof heldFor> {
  const { history } = evaluation.facts;
  const { threshold = 0 } = rule;
  const valueAt = (at: number): number | undefined => {
    const value = rule.value === undefined ? history.get(`${rule.series}:${name}`, at) : rule.value(history, name, at);
    return value !== undefined && value > threshold && hasCause(rule, name, evaluation, at) ? threshold : value;
  };
  return heldFor(valueAt, threshold, rule.forSeconds, step, evaluation.oldest);
}

/**
 * Returns whether an alert about a cause fires in a step, or fired in the one before: a step in which a cause ends still
 * has its effects. A pause is the cause for its own partition and topic only.
 */
function hasCause({ unless = [] }: Rule, name: string, evaluation: Evaluation, step: number): boolean {
  const firesAt = (cause: Rule, of: string, at: number): boolean =>
    (heldOf(cause, of, evaluation, at)?.seconds ?? -1) >= cause.forSeconds;
  const concerns = (cause: Rule, of: string): boolean =>
    cause.alert !== PAUSED || `${of.replace(' partition', '')} `.startsWith(`${name} `);
  return [...evaluation.subjects].some(
    ([cause, subjects]) =>
      unless.includes(cause.alert) &&
      subjects.some((of) => concerns(cause, of) && (firesAt(cause, of, step) || firesAt(cause, of, step - 1))),
  );
}
