import type { History } from './history.ts';
import { HISTORY_STEPS, STEP_SECONDS, type AlertStatus } from './wire.ts';

/** What the rules read: samples of ClickHouse and of this process. */
export interface Facts {
  readonly store: History;
  readonly process: History;
  /** whether ingest, push, or the rollup service run in this process */
  readonly ingestHere: boolean;
  readonly pushHere: boolean;
  readonly rollupHere: boolean;
}

/**
 * A rule of deploy/prometheus/alerts.yml: it fires when the value of a subject stays above the threshold for
 * `forSeconds`. All thresholds of the console are in this table; alerts.test.ts compares it with the file.
 */
export interface Rule {
  readonly alert: string;
  readonly severity: 'page' | 'ticket';
  readonly forSeconds: number;
  readonly threshold: number;
  readonly rule: string;
  /** prefix of the series whose names are the subjects */
  readonly subjects: (facts: Facts) => { readonly history: History; readonly prefix: string };
  /** undefined if unknown for this step */
  readonly value: (facts: Facts, subject: string, step: number) => number | undefined;
  readonly show: (value: number) => string;
  /** why this process cannot tell */
  readonly unknown?: (facts: Facts) => string | undefined;
}

const ELSEWHERE = 'Ingest runs in another process. Prometheus watches this rule there.';
const steps = (seconds: number): number => seconds / STEP_SECONDS;
const percent = (share: number): string => `${(share * 100).toFixed(1)} %`;
const seconds = (value: number): string => `${value.toFixed(value < 10 ? 1 : 0)} s`;

/** Returns the sum of a series over the steps that end with this one. Undefined if none of them has a value. */
function sum(history: History, name: string, step: number, over: number): number | undefined {
  const known = history.values(name, step - over + 1, step, null).filter((v) => v !== null);
  return known.length === 0 ? undefined : known.reduce((a, b) => a + b, 0);
}

/** Returns the share of a part in the whole over a time. Undefined if the whole is 0. */
function share(history: History, part: string, whole: string, step: number, overSeconds: number): number | undefined {
  const all = sum(history, whole, step, steps(overSeconds));
  return all === undefined || all === 0 ? undefined : (sum(history, part, step, steps(overSeconds)) ?? 0) / all;
}

const ofStore =
  (prefix: string) =>
  ({ store }: Facts) => ({ history: store, prefix });
const ofProcess =
  (prefix: string) =>
  ({ process }: Facts) => ({ history: process, prefix });
const levelOfStore =
  (prefix: string) =>
  ({ store }: Facts, subject: string, step: number): number | undefined =>
    store.get(prefix + subject, step);
const levelOfProcess =
  (prefix: string) =>
  ({ process }: Facts, subject: string, step: number): number | undefined =>
    process.get(prefix + subject, step);
const onlyIngest = (facts: Facts): string | undefined => (facts.ingestHere ? undefined : ELSEWHERE);
const onlyRollup = (facts: Facts): string | undefined =>
  facts.rollupHere ? undefined : 'The rollup service runs in another process. Prometheus watches this rule there.';

/** If one insert or one query in twenty takes longer than this, they are too slow. */
export const SLOW_INSERT_SECONDS = 5;
export const SLOW_QUERY_SECONDS = 2;
/** A partition with records to take that has not moved for this long is stalled. */
export const STALLED_SECONDS = 600;

export const rules: readonly Rule[] = [
  {
    alert: 'SluiceClickHouseUnreachable',
    severity: 'page',
    forSeconds: 120,
    threshold: 0,
    rule: 'this process cannot reach ClickHouse',
    subjects: ofProcess('unreachable:'),
    value: levelOfProcess('unreachable:'),
    show: () => 'does not answer',
  },
  {
    alert: 'SluiceNotConsuming',
    severity: 'page',
    forSeconds: 180,
    threshold: 0,
    rule: 'ingest is no member of its consumer group: nothing is read from Kafka',
    subjects: ofProcess('apart:'),
    value: levelOfProcess('apart:'),
    show: () => 'is no member of its group',
    unknown: onlyIngest,
  },
  {
    alert: 'SluiceStalled',
    severity: 'page',
    forSeconds: 300,
    threshold: 0,
    rule: 'a partition has records to take and has not moved for 10 minutes',
    subjects: ofProcess('stalled:'),
    value: levelOfProcess('stalled:'),
    show: () => 'does not move',
    unknown: onlyIngest,
  },
  {
    alert: 'SluiceLag',
    severity: 'page',
    forSeconds: 600,
    threshold: 500_000,
    rule: 'a topic is more than 500,000 records behind',
    subjects: ofProcess('lag:'),
    value: levelOfProcess('lag:'),
    show: (value) => `${value.toLocaleString('en')} records behind`,
    unknown: onlyIngest,
  },
  {
    alert: 'SluiceStale',
    severity: 'ticket',
    forSeconds: 600,
    threshold: 60,
    rule: 'what becomes visible of a topic is older than 60 seconds',
    subjects: ofStore('delay:'),
    value: ({ store }, subject, step) =>
      (sum(store, `events:${subject}`, step, steps(300)) ?? 0) === 0 ? 0 : store.get(`delay:${subject}`, step),
    show: seconds,
  },
  {
    alert: 'SluiceDeadLetters',
    severity: 'ticket',
    forSeconds: 600,
    threshold: 0.01,
    rule: 'more than 1 % of the events of the last ten minutes are dead letters',
    subjects: ofStore('events:'),
    value: ({ store }, subject, step) => share(store, `bad:${subject}`, `events:${subject}`, step, 600) ?? 0,
    show: percent,
  },
  {
    alert: 'SluicePartitionPaused',
    severity: 'page',
    forSeconds: 0,
    threshold: 0,
    rule: 'a partition is paused because too many of its last messages are dead letters',
    subjects: ofStore('paused:'),
    value: levelOfStore('paused:'),
    show: () => 'paused',
  },
  {
    alert: 'SluiceInsertsSlow',
    severity: 'ticket',
    forSeconds: 600,
    threshold: 0.05,
    rule: 'one insert in twenty takes longer than 5 seconds',
    subjects: ofProcess('inserts:'),
    value: ({ process }, subject, step) =>
      share(process, `slow inserts:${subject}`, `inserts:${subject}`, step, 600) ?? 0,
    show: (value) => `${percent(value)} of the inserts`,
    unknown: onlyIngest,
  },
  {
    alert: 'SluiceTooManyParts',
    severity: 'page',
    forSeconds: 900,
    threshold: 500,
    rule: 'a partition of a table has more than 500 parts',
    subjects: ofStore('parts:'),
    value: levelOfStore('parts:'),
    show: (value) => `${value} parts`,
  },
  {
    alert: 'SluiceRollupDiffers',
    severity: 'page',
    forSeconds: 1800,
    threshold: 0,
    rule: 'a rollup differs from its raw table',
    subjects: ofStore('differs:'),
    value: levelOfStore('differs:'),
    show: (value) => `${value} ${value === 1 ? 'span' : 'spans'} of time`,
  },
  {
    alert: 'SluiceAuditBehind',
    severity: 'ticket',
    forSeconds: 900,
    threshold: 10_800,
    rule: 'a rollup was last compared with its raw table more than 3 hours ago',
    subjects: ofProcess('unaudited:'),
    value: levelOfProcess('unaudited:'),
    show: (value) => `${Math.round(value / 60)} min ago`,
    unknown: onlyRollup,
  },
  {
    alert: 'SluiceRollupSourceIncomplete',
    severity: 'page',
    forSeconds: 300,
    threshold: 0,
    rule: 'a raw table has fewer rows than the ledger says, so its rollup is not rebuilt',
    subjects: ofProcess('incomplete:'),
    value: levelOfProcess('incomplete:'),
    show: () => 'its raw table lacks rows',
    unknown: onlyRollup,
  },
  {
    alert: 'SluiceClockDiffers',
    severity: 'page',
    forSeconds: 60,
    threshold: 60,
    rule: "the clock of this process differs from ClickHouse's by more than 60 seconds",
    subjects: ofProcess('clock:'),
    value: levelOfProcess('clock:'),
    show: seconds,
    unknown: onlyIngest,
  },
  {
    alert: 'SluiceWaitsForGroup',
    severity: 'page',
    forSeconds: 300,
    threshold: 0,
    rule: 'a topic is not ingested: members of another consumer group still have its partitions',
    subjects: ofProcess('waits:'),
    value: levelOfProcess('waits:'),
    show: () => 'waits for the other group',
    unknown: onlyIngest,
  },
  {
    alert: 'SluiceCommitsRefused',
    severity: 'ticket',
    forSeconds: 600,
    threshold: 0.5,
    rule: 'Kafka refuses more than one commit in two seconds',
    subjects: ofProcess('refused commits:'),
    value: ({ process }, subject, step) => (sum(process, `refused commits:${subject}`, step, steps(600)) ?? 0) / 600,
    show: (value) => `${value.toFixed(1)} a second`,
    unknown: onlyIngest,
  },
  {
    alert: 'SluiceErrors',
    severity: 'page',
    forSeconds: 300,
    threshold: 0.02,
    rule: 'more than 2 % of the requests of the last five minutes fail',
    subjects: ofProcess('requests:'),
    value: ({ process }, subject, step) => share(process, `errors:${subject}`, `requests:${subject}`, step, 300) ?? 0,
    show: percent,
  },
  {
    alert: 'SluiceQueriesSlow',
    severity: 'ticket',
    forSeconds: 600,
    threshold: 0.05,
    rule: 'one query in twenty takes longer than 2 seconds',
    subjects: ofProcess('queries:'),
    value: ({ process }, subject, step) =>
      share(process, `slow queries:${subject}`, `queries:${subject}`, step, 600) ?? 0,
    show: (value) => `${percent(value)} of the queries`,
  },
  {
    alert: 'SluiceCacheCold',
    severity: 'ticket',
    forSeconds: 3600,
    threshold: 0.5,
    rule: 'fewer than half of the answers come from the cache, at more than one request a second',
    subjects: ofProcess('cacheable:'),
    value: ({ process }, subject, step) => {
      const asked = sum(process, `cacheable:${subject}`, step, steps(1800)) ?? 0;
      return asked <= 1800 ? 0 : 1 - (sum(process, `hits:${subject}`, step, steps(1800)) ?? 0) / asked;
    },
    show: (value) => `${percent(1 - value)} from the cache`,
  },
  {
    alert: 'SluicePushRefused',
    severity: 'page',
    forSeconds: 300,
    threshold: 0.02,
    rule: 'more than 2 % of the pushed requests of the last five minutes are refused',
    subjects: ofProcess('pushes:'),
    value: ({ process }, subject, step) =>
      share(process, `refused pushes:${subject}`, `pushes:${subject}`, step, 300) ?? 0,
    show: percent,
    unknown: ({ pushHere }) => (pushHere ? undefined : 'HTTP push does not run in this process.'),
  },
];

/** Left to Prometheus: a service that is down cannot say so. An open page does, when its calls fail. */
export const LEFT_TO_PROMETHEUS: readonly string[] = ['SluiceDown'];

/** Returns the state of every rule at the end of a step, firing ones first. */
export function evaluateAlerts(
  facts: Facts,
  step: number,
  runbook: (alert: string) => string | undefined,
): AlertStatus[] {
  const order = { firing: 0, pending: 1, unknown: 2, ok: 3 };
  return rules.map((rule) => evaluateRule(rule, facts, step, runbook)).sort((a, b) => order[a.state] - order[b.state]);
}

function evaluateRule(
  rule: Rule,
  facts: Facts,
  step: number,
  runbook: (alert: string) => string | undefined,
): AlertStatus {
  const { alert, severity } = rule;
  const common = { alert, severity, rule: rule.rule };
  const reason = rule.unknown?.(facts);
  if (reason !== undefined) return { ...common, state: 'unknown', subjects: [], reason };
  const { history, prefix } = rule.subjects(facts);
  const oldest = step - HISTORY_STEPS + 1;
  const subjects = history
    .names(oldest, step)
    .filter((name) => name.startsWith(prefix))
    .flatMap((name) => {
      const subject = name.slice(prefix.length);
      const held = heldSteps(rule, facts, subject, step, oldest);
      return held === undefined
        ? []
        : [
            {
              name: subject,
              value: rule.show(held.value),
              state: held.steps * STEP_SECONDS >= rule.forSeconds ? ('firing' as const) : ('pending' as const),
            },
          ];
    });
  if (subjects.length === 0) return { ...common, state: 'ok', subjects };
  const section = runbook(alert);
  return {
    ...common,
    state: subjects.some((s) => s.state === 'firing') ? 'firing' : 'pending',
    subjects,
    ...(section !== undefined && { runbook: section }),
  };
}

/**
 * Returns for how many steps up to now the value has been above the threshold, and the value. Undefined if it is not
 * above. Unknown steps count like their neighbours.
 */
function heldSteps(
  rule: Rule,
  facts: Facts,
  subject: string,
  step: number,
  oldest: number,
): { steps: number; value: number } | undefined {
  let latest: number | undefined;
  let first = step;
  for (let s = step; s >= oldest; s--) {
    const value = rule.value(facts, subject, s);
    if (value === undefined) continue;
    if (value <= rule.threshold) break;
    latest ??= value;
    first = s;
    if ((step - first + 1) * STEP_SECONDS >= rule.forSeconds) break;
  }
  return latest === undefined ? undefined : { steps: step - first + 1, value: latest };
}
