import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { beforeAll, describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { prometheus } from '../../harness/tools.ts';

// Guarantee: each cause fires the one alert whose section of the runbook helps, at the time that the section names, and
// no other alert.
// Prometheus' own promtool evaluates the rules over what the three services show each minute. That they show it:
// readiness.test.ts, watching.test.ts beside this file.

const DEPLOY = fileURLToPath(new URL('../../../deploy/prometheus', import.meta.url));
const rules = join(DEPLOY, 'alerts.yml');
const runbook = readFileSync(new URL('../../../docs/runbook.md', import.meta.url), 'utf8');
const names = (
  parse(readFileSync(rules, 'utf8')) as { groups: readonly { rules: readonly { alert: string }[] }[] }
).groups.flatMap((g) => g.rules.map((r) => r.alert));
const run = promisify(execFile);

let promtool: string;
beforeAll(async () => {
  ({ promtool } = await prometheus());
}, 6 * 60_000);

/** What is wrong in one minute; the defaults are a healthy system with traffic. */
interface State {
  readonly clickhouse: boolean;
  /** the check of ClickHouse by ingest fails every third minute */
  readonly flickers: boolean;
  /** every third minute a process starts, whose first check of ClickHouse fails */
  readonly starts: boolean;
  readonly kafka: boolean;
  /** ingest starts again every third minute, and does not answer then */
  readonly restarts: boolean;
  /** a check that fails, beside those of ClickHouse and the consumer */
  readonly unready: string;
  /** `dead`: does not answer; `gone`: Docker's DNS does not name it either */
  readonly ingest: 'runs' | 'dead' | 'gone';
  readonly traffic: boolean;
  readonly pushes: boolean;
  /** of edge_logs, 0 to 1 */
  readonly badShare: number;
  readonly paused: boolean;
  /** partition 1 of edge_logs */
  readonly stuck: boolean;
  /** of it, nobody knows where it goes on */
  readonly untaken: boolean;
  readonly lag: number;
  readonly freshness: number;
  /** of a second ingest process, which has had no event since */
  readonly freshnessOfQuiet: number | undefined;
  readonly insertSeconds: number;
  readonly querySeconds: number;
  readonly hitShare: number;
  readonly failedShare: number;
  readonly refusedShare: number;
  /** of all requests, those of blocked addresses */
  readonly blockedShare: number;
  /** of all pushed requests */
  readonly blockedPushes: number;
  readonly parts: number;
  readonly differences: number;
  readonly audits: boolean;
  /** spans of a rollup whose raw rows are fewer than the ledger says */
  readonly incomplete: number;
  /** of ingest's clock before ClickHouse's, seconds */
  readonly clockAhead: number;
  readonly waitsForGroup: boolean;
  /** offsets that Kafka deleted before they were taken, each minute */
  readonly gone: number;
  readonly refusesRetention: boolean;
  /** commits that Kafka refuses, each minute */
  readonly refusedCommits: number;
}

const HEALTHY: State = {
  clickhouse: true,
  flickers: false,
  starts: false,
  kafka: true,
  restarts: false,
  unready: '',
  ingest: 'runs',
  traffic: true,
  pushes: true,
  badShare: 0.001,
  paused: false,
  stuck: false,
  untaken: false,
  lag: 40,
  freshness: 0.6,
  freshnessOfQuiet: undefined,
  insertSeconds: 0.05,
  querySeconds: 0.05,
  hitShare: 0.9,
  failedShare: 0,
  refusedShare: 0,
  blockedShare: 0,
  blockedPushes: 0,
  parts: 20,
  differences: 0,
  audits: true,
  incomplete: 0,
  clockAhead: 0.2,
  waitsForGroup: false,
  gone: 0,
  refusesRetention: false,
  refusedCommits: 1,
};

const CAUSE = 60;
/** A scenario goes on for this long after its last event: promtool needs some 5 ms of CPU a minute. */
const AFTER = 30;
/** where nothing may fire */
const QUIET = 240;
const buckets = [0.1, 0.5, 1, 2.5, 5, 10, 30];

function labelsOf(service: string): Readonly<Record<string, string>> {
  return { instance: `${service}:9100`, service };
}

/** What a scrape of the three services has in each minute up to `end`. Undefined = the series is gone. */
function scrapes(stateAt: (minute: number) => State, end: number): Map<string, (number | undefined)[]> {
  const all = new Map<string, (number | undefined)[]>();
  const counters = new Map<string, number>();
  let audited = 0;
  for (let minute = 0; minute <= end; minute++) {
    const s = stateAt(minute);
    const set = (name: string, labels: Readonly<Record<string, string>>, value: number): void => {
      const series = `${name}{job="sluice",${Object.entries(labels)
        .map(([k, v]) => `${k}="${v}"`)
        .join(',')}}`;
      if (!all.has(series)) all.set(series, []);
      all.get(series)![minute] = value;
    };
    const count = (name: string, labels: Readonly<Record<string, string>>, more: number): void => {
      const key = name + JSON.stringify(labels);
      counters.set(key, (counters.get(key) ?? 0) + more);
      set(name, labels, counters.get(key)!);
    };
    const observe = (name: string, labels: Readonly<Record<string, string>>, seconds: number, times: number): void => {
      for (const le of buckets) count(`${name}_bucket`, { ...labels, le: String(le) }, seconds <= le ? times : 0);
      count(`${name}_bucket`, { ...labels, le: '+Inf' }, times);
    };
    const [ingest, rollup, query] = [labelsOf('ingest'), labelsOf('rollup'), labelsOf('query')];
    const writes = s.clickhouse && s.kafka && s.traffic;
    const isUp = s.ingest === 'runs' && !(s.restarts && minute % 3 === 0);
    const check = (of: Readonly<Record<string, string>>, name: string): void =>
      set('sluice_ready', { ...of, check: name }, Number(s.clickhouse && s.unready !== name));

    if (s.ingest !== 'gone') set('up', ingest, Number(isUp));
    for (const of of [rollup, query]) set('process_start_time_seconds', of, 0);
    if (isUp) {
      set('process_start_time_seconds', ingest, s.restarts ? Math.floor(minute / 3) : 0);
      if (s.gone > 0) count('sluice_ingest_gone_offsets_total', { ...ingest, topic: 'edge_logs' }, s.gone);
      set(
        'sluice_ready',
        { ...ingest, check: 'clickhouse' },
        Number(s.clickhouse && !(s.flickers && minute % 3 === 0)),
      );
      set('sluice_ready', { ...ingest, check: 'consumer' }, Number(s.kafka));
      set('sluice_ingest_partitions', ingest, s.kafka ? 3 : 0);
      set('sluice_ingest_clock_ahead_seconds', ingest, s.clockAhead);
      if (s.kafka) count('sluice_ingest_commits_refused_total', ingest, s.refusedCommits);
      if (s.waitsForGroup)
        set('sluice_ingest_partition_waits_for_group', { ...ingest, topic: 'edge_logs', partition: '1' }, 1);
      if (s.traffic) {
        for (const [topic, partition] of [
          ['edge_logs', '0'],
          ['edge_logs', '1'],
          ['auth_logs', '0'],
        ] as const) {
          const here = { ...ingest, topic, partition };
          const isStuck = topic === 'edge_logs' && partition === '1' && (s.stuck || s.paused);
          if (!s.kafka) continue;
          if (topic === 'edge_logs' && partition === '1' && s.untaken) {
            set('sluice_ingest_partition_untaken', here, 1);
            continue;
          }
          count('sluice_ingest_position_offset', here, writes && !isStuck ? 1_000 : 0);
          set(
            'sluice_ingest_lag_records',
            here,
            s.clickhouse && !isStuck ? s.lag : 700_000 * Number(s.paused) + Math.max(5_000, s.lag),
          );
          if (s.paused) set('sluice_ingest_partition_paused', here, isStuck ? 1 : 0);
        }
        for (const source of ['edge_logs', 'auth_logs']) {
          count('sluice_ingest_events_total', { ...ingest, source }, writes ? 1_000 : 0);
          set('sluice_ingest_freshness_seconds', { ...ingest, source }, s.freshness);
          if (s.freshnessOfQuiet !== undefined) {
            const quiet = { ...labelsOf('ingest-2'), source };
            count('sluice_ingest_events_total', quiet, 0);
            set('sluice_ingest_freshness_seconds', quiet, s.freshnessOfQuiet);
          }
          observe('sluice_ingest_insert_seconds', { ...ingest, source }, s.insertSeconds, writes ? 60 : 0);
        }
      }
    }

    set('up', rollup, 1);
    for (const name of ['clickhouse', 'rollups']) check(rollup, name);
    // every hour, and the last time right before the cause
    if (s.clickhouse && s.audits && (minute - CAUSE + 1) % 60 === 0) audited = minute * 60 - 180;
    set('sluice_rollup_audited_to_seconds', { ...rollup, rollup: 'api_requests' }, audited);
    set('sluice_rollup_differences', { ...rollup, rollup: 'api_requests' }, s.differences);
    set('sluice_rollup_source_incomplete', { ...rollup, rollup: 'api_requests' }, s.incomplete);
    if (s.incomplete > 0) count('sluice_rollup_failures_total', { ...rollup, work: 'repair' }, 1);
    if (s.refusesRetention)
      count('sluice_rollup_failures_total', { ...rollup, work: 'retention' }, minute % 60 === 0 ? 2 : 0);
    for (const table of ['edge_logs', 'batches'])
      set('sluice_rollup_table_fullest_partition_parts', { ...rollup, table }, table === 'edge_logs' ? s.parts : 5);
    if (s.traffic)
      for (const source of ['edge_logs', 'auth_logs'])
        set('sluice_rollup_dead_letter_share', { ...rollup, source }, source === 'edge_logs' ? s.badShare : 0);

    set('up', query, 1);
    check(query, 'clickhouse');
    for (const name of ['endpoints', 'keys'])
      set('sluice_ready', { ...query, check: name }, Number(s.unready !== name));
    if (s.starts && minute % 3 === 0) set('sluice_ready', { ...labelsOf(`query-${minute}`), check: 'clickhouse' }, 0);
    if (s.traffic) {
      const asked = 600;
      const answered = (endpoint: string, status: string, cache: string, times: number): void => {
        count('sluice_query_requests_total', { ...query, endpoint, status, cache }, times);
      };
      const [hits, rest] = [asked * s.hitShare, asked * (1 - s.hitShare)];
      // its series begins with the first hit
      if (hits > 0) answered('usage.api-counts', '200', 'hit', s.clickhouse ? hits : 0);
      answered('usage.api-counts', '200', 'stale', s.clickhouse ? 0 : hits);
      answered('usage.api-counts', '200', 'miss', s.clickhouse ? rest - asked * s.failedShare : 0);
      answered('usage.api-counts', '503', '', s.clickhouse ? asked * s.failedShare : rest);
      answered('logs.all', '200', 'none', s.clickhouse ? 60 : 0);
      answered('logs.all', '503', '', s.clickhouse ? 0 : 60);
      answered('other', '401', '', 5);
      const blockedPushes = s.pushes ? 60 * s.blockedPushes : 0;
      count('sluice_query_blocked_requests_total', query, asked * s.blockedShare + blockedPushes);
      answered('usage.api-counts', '429', '', asked * s.blockedShare);
      observe(
        'sluice_query_duration_seconds',
        { ...query, endpoint: 'usage.api-counts', cache: 'miss' },
        s.querySeconds,
        s.clickhouse ? rest : 0,
      );
      observe('sluice_query_duration_seconds', { ...query, endpoint: 'usage.api-counts', cache: 'hit' }, 0.001, hits);
      if (s.pushes) {
        count(
          'sluice_push_requests_total',
          { ...query, source: 'edge_logs', status: '200' },
          s.kafka ? 60 * (1 - s.refusedShare) : 0,
        );
        count(
          'sluice_push_requests_total',
          { ...query, source: 'edge_logs', status: '503' },
          s.kafka ? 60 * s.refusedShare : 60,
        );
        count('sluice_push_requests_total', { ...query, source: 'edge_logs', status: '422' }, 30);
        count('sluice_push_requests_total', { ...query, source: 'edge_logs', status: '429' }, blockedPushes);
      }
    }
  }
  return all;
}

/** promtool's notation; where a scrape no longer has a series, Prometheus marks it as stale. */
function notation(values: readonly (number | undefined)[], end: number): string {
  return Array.from(
    { length: end + 1 },
    (_, i) => values[i] ?? (i > 0 && values[i - 1] !== undefined ? 'stale' : '_'),
  ).join(' ');
}

interface Scenario {
  readonly cause: string;
  /** undefined = nothing may fire */
  readonly fires: string | undefined;
  readonly during: Partial<State>;
  /** minute of its end; never, where not given */
  readonly until?: number;
  readonly always?: Partial<State>;
  /** from the cause to the alert, if it is not the time of the runbook */
  readonly minutes?: number;
}

const scenarios: readonly Scenario[] = [
  { cause: 'a healthy system with traffic', fires: undefined, during: {} },
  { cause: 'a healthy system that never had an event', fires: undefined, during: {}, always: { traffic: false } },
  { cause: 'ingest is killed', fires: 'SluiceDown', during: { ingest: 'dead' } },
  { cause: 'the container of ingest is gone', fires: 'SluiceDown', during: { ingest: 'gone' } },
  { cause: 'ingest starts again every three minutes', fires: 'SluiceRestarts', during: { restarts: true } },
  { cause: 'the rollups cannot be read', fires: 'SluiceNotReady', during: { unready: 'rollups' } },
  { cause: 'the keys cannot be loaded', fires: 'SluiceNotReady', during: { unready: 'keys' } },
  { cause: 'Kafka deletes what ingest has not taken', fires: 'SluiceEventsLost', during: { gone: 500 } },
  { cause: 'ClickHouse refuses retention', fires: 'SluiceRetentionRefused', during: { refusesRetention: true } },
  {
    cause: 'ClickHouse is unreachable for an hour',
    fires: 'SluiceClickHouseUnreachable',
    during: { clickhouse: false },
    until: CAUSE + 60,
  },
  { cause: 'ClickHouse is unreachable for good', fires: 'SluiceClickHouseUnreachable', during: { clickhouse: false } },
  {
    cause: 'ClickHouse is unreachable for an hour, and meanwhile no member joins the group',
    fires: 'SluiceClickHouseUnreachable',
    during: { clickhouse: false, kafka: false },
    until: CAUSE + 60,
    always: { pushes: false },
  },
  {
    cause: 'ClickHouse is unreachable for an hour, and records pile up',
    fires: 'SluiceClickHouseUnreachable',
    during: { clickhouse: false, lag: 400_000 },
    until: CAUSE + 60,
  },
  {
    cause: 'Kafka is unreachable, and nobody pushes',
    fires: 'SluiceNotConsuming',
    during: { kafka: false },
    always: { pushes: false },
  },
  {
    cause: 'Kafka is unreachable, and producers push',
    fires: 'SluiceNotConsuming',
    during: { kafka: false },
    until: CAUSE + 60,
  },
  { cause: 'one partition does not move', fires: 'SluiceStalled', during: { stuck: true } },
  {
    cause: 'one partition cannot be taken, for a minute before and since',
    fires: 'SluiceStalled',
    minutes: 5,
    during: { untaken: true },
  },
  {
    cause: 'ClickHouse is unreachable, and the partitions cannot be taken',
    fires: 'SluiceClickHouseUnreachable',
    during: { clickhouse: false, untaken: true },
  },
  { cause: 'more is produced than written', fires: 'SluiceLag', during: { lag: 400_000 } },
  {
    cause: 'more is produced than written, and a check of ClickHouse fails now and then',
    fires: 'SluiceLag',
    during: { lag: 400_000, flickers: true },
  },
  { cause: 'producers send late', fires: 'SluiceStale', during: { freshness: 900 } },
  {
    cause: 'an ingest process has had no event since an outage, and another one has',
    fires: undefined,
    during: { freshnessOfQuiet: 900 },
  },
  { cause: 'five in a hundred messages are bad', fires: 'SluiceDeadLetters', during: { badShare: 0.05 } },
  {
    cause: 'most messages of a partition are bad',
    fires: 'SluicePartitionPaused',
    during: { badShare: 0.8, paused: true },
  },
  { cause: 'inserts take eight seconds', fires: 'SluiceInsertsSlow', during: { insertSeconds: 8 } },
  { cause: 'merges do not keep up', fires: 'SluiceTooManyParts', during: { parts: 800 } },
  { cause: 'a rollup cannot be repaired', fires: 'SluiceRollupDiffers', during: { differences: 2 } },
  { cause: 'a raw table has lost rows', fires: 'SluiceRollupSourceIncomplete', during: { incomplete: 1 } },
  { cause: 'the clock of ingest is two minutes ahead', fires: 'SluiceClockDiffers', during: { clockAhead: 120 } },
  { cause: 'another group has the topics', fires: 'SluiceWaitsForGroup', during: { waitsForGroup: true } },
  { cause: 'Kafka refuses commits', fires: 'SluiceCommitsRefused', during: { refusedCommits: 60 } },
  { cause: 'the audit stops', fires: 'SluiceAuditBehind', during: { audits: false } },
  { cause: 'one request in twenty fails', fires: 'SluiceErrors', during: { failedShare: 0.05 } },
  {
    cause: 'one request in twenty fails, and a check of ClickHouse fails now and then',
    fires: 'SluiceErrors',
    during: { failedShare: 0.05, flickers: true },
  },
  {
    cause: 'one request in twenty fails, and processes start again and again',
    fires: 'SluiceErrors',
    during: { failedShare: 0.05, starts: true },
  },
  {
    cause: 'one request in ten comes from a blocked address',
    fires: 'SluiceCallersBlocked',
    during: { blockedShare: 0.1 },
  },
  { cause: 'a blocked address pushes', fires: 'SluiceCallersBlocked', during: { blockedPushes: 0.8 } },
  { cause: 'queries take four seconds', fires: 'SluiceQueriesSlow', during: { querySeconds: 4 } },
  { cause: 'callers ask with ever new parameters', fires: 'SluiceCacheCold', during: { hitShare: 0.1 } },
  {
    cause: 'callers begin to ask, and no answer is ever a hit',
    fires: 'SluiceCacheCold',
    minutes: 63,
    during: { traffic: true },
    always: { traffic: false, hitShare: 0 },
  },
  { cause: 'one push in ten is refused', fires: 'SluicePushRefused', during: { refusedShare: 0.1 } },
];

/** The minutes that the alert's section of the runbook names. */
function minutesOf(alert: string): number {
  const section = runbook.slice(runbook.indexOf(`### ${alert}\n`));
  const [, minutes] = /^Fires (\d+) minutes? after /m.exec(section.slice(0, section.indexOf('\n##', 4))) ?? [];
  expect(minutes, `the runbook says when ${alert} fires`).toBeDefined();
  return Number(minutes);
}

/** Returns what promtool has to say against the scenario, and nothing where it agrees. */
async function evaluate({ always = {}, during, until = Infinity, fires, minutes: after }: Scenario): Promise<string> {
  const firesAt = fires === undefined ? Infinity : CAUSE + (after ?? minutesOf(fires));
  const end = fires === undefined ? QUIET : Math.max(firesAt, Number.isFinite(until) ? until : 0) + AFTER;
  const series = scrapes(
    (minute) => ({ ...HEALTHY, ...always, ...(minute >= CAUSE && minute < until ? during : {}) }),
    end,
  );
  // after the end of its cause an alert may go on for a minute: the next scrape and evaluation end it
  const minutes = Array.from({ length: end + 1 }, (_, i) => i).filter((minute) => minute !== until && minute > 5);
  const isFiring = (minute: number): boolean => minute >= firesAt && minute < until;
  const folder = mkdtempSync(join(tmpdir(), 'sluice-alerts-'));
  try {
    const file = join(folder, 'test.yml');
    writeFileSync(
      file,
      JSON.stringify({
        rule_files: [rules],
        evaluation_interval: '1m',
        tests: [
          {
            interval: '1m',
            input_series: [...series].map(([name, values]) => ({ series: name, values: notation(values, end) })),
            promql_expr_test: minutes.map((minute) => ({
              expr: 'group by (alertname) (ALERTS{alertstate="firing"})',
              eval_time: `${minute}m`,
              exp_samples: isFiring(minute) ? [{ labels: `{alertname="${fires}"}`, value: 1 }] : [],
            })),
          },
        ],
      }),
    );
    return await run(promtool, ['test', 'rules', file], { maxBuffer: 64 * 1024 * 1024 }).then(
      () => '',
      (error: unknown) => {
        const { stdout, stderr } = error as { stdout: string; stderr: string };
        return (stderr + stdout).trim().split('\n').slice(0, 13).join('\n');
      },
    );
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

test('promtool accepts the rules and the example of a configuration', async () => {
  expect((await run(promtool, ['check', 'rules', rules])).stdout).toContain(`SUCCESS: ${names.length} rules found`);
  expect((await run(promtool, ['check', 'config', join(DEPLOY, 'prometheus.yml')])).stdout).toContain(
    'is valid prometheus config file syntax',
  );
});

test('every alert has a cause here', () => {
  expect(new Set(scenarios.flatMap(({ fires }) => fires ?? []))).toEqual(new Set(names));
});

describe('what fires when', () => {
  test.each(scenarios.map((scenario) => [scenario.cause, scenario.fires ?? 'nothing', scenario] as const))(
    '%s: %s, and no other alert',
    async (_cause, _fires, scenario) => {
      expect(await evaluate(scenario)).toBe('');
    },
    60_000,
  );
});
