import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { parser } from '@prometheus-io/lezer-promql';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { all } from '../cli.ts';
import { settingsTable } from '../common/config/settings.ts';
import { createRegistry, type Registry } from '../common/metrics.ts';
import { watchReadiness } from '../common/readiness.ts';
import { LANE_EVENTS } from '../services/ingest/delivery/ports.ts';
import { createIngestMetrics } from '../services/ingest/metrics.ts';
import { createPushMetrics } from '../services/push/metrics.ts';
import { createQueryMetrics } from '../services/query/metrics.ts';
import { createRollupMetrics } from '../services/rollup/period/metrics.ts';

// Dashboard, alerts, runbook and the page of metrics say the same, and what the processes do.
// test/integration/operate/: what Prometheus makes of them (alerts.test.ts, dashboard.test.ts).

const ROOT = new URL('../', import.meta.url);
const read = (name: string): string => readFileSync(new URL(name, ROOT), 'utf8');

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly for: string;
  readonly labels: { readonly severity: string };
  readonly annotations: { readonly summary: string };
}

interface Panel {
  readonly title: string;
  readonly type: string;
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly options?: { readonly legend: object };
  readonly targets?: readonly { readonly expr: string; readonly legendFormat: string }[];
}

const rules = (
  parse(read('deploy/prometheus/alerts.yml')) as { groups: readonly { rules: readonly Rule[] }[] }
).groups.flatMap((g) => g.rules);
const panels = (JSON.parse(read('deploy/grafana/sluice.json')) as { panels: readonly Panel[] }).panels;
const queries = panels.flatMap((p) =>
  (p.targets ?? []).map(({ expr, legendFormat }) => ({
    where: p.title,
    expr,
    shows: [...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].map(([, label]) => label!),
  })),
);
/** `shows`: labels of the result that are shown to people */
const expressions = [
  ...rules.map((r) => ({
    where: r.alert,
    expr: r.expr,
    shows: [...r.annotations.summary.matchAll(/\$labels\.(\w+)/g)].map(([, label]) => label!),
  })),
  ...queries,
];

interface Metric {
  readonly name: string;
  readonly type: string;
  readonly help: string;
  readonly labels: readonly string[];
}

const services: Readonly<Record<string, (registry: Registry) => unknown>> = {
  ingest: createIngestMetrics,
  rollup: createRollupMetrics,
  query: (registry) =>
    createQueryMetrics(registry, {
      cacheEntries: () => 0,
      cacheBytes: () => 0,
      queriesRunning: () => 0,
      queriesWaiting: () => 0,
      requestsInFlight: () => 0,
      responseMemoryBytes: () => 0,
    }),
  push: (registry) => createPushMetrics(registry, () => 0),
  readiness: (registry) => watchReadiness(registry, {}),
};

/** The metrics that every process has. */
const ofProcess = metricsIn(createRegistry());
/** The metrics of each service, without those that every process has. */
const ofServices = Object.entries(services).map(([service, create]) => {
  const registry = createRegistry();
  create(registry);
  const known = new Set(ofProcess.map((m) => m.name));
  return { service, metrics: metricsIn(registry).filter((m) => !known.has(m.name)) };
});

function metricsIn(registry: Registry): Metric[] {
  return (
    registry.getMetricsAsArray() as unknown as {
      name: string;
      help: string;
      labelNames?: readonly string[];
      constructor: { name: string };
    }[]
  ).map((m) => ({ name: m.name, type: m.constructor.name.toLowerCase(), help: m.help, labels: m.labelNames ?? [] }));
}

/** Names that a scrape has: a histogram has three. Prometheus itself adds `up` and `ALERTS`. */
const series = new Map<string, readonly string[]>([
  ['up', []],
  ['ALERTS', ['alertname', 'alertstate']],
]);
for (const { name, type, labels } of [...ofProcess, ...ofServices.flatMap((s) => s.metrics)])
  for (const [suffix, more] of suffixesOf(type)) series.set(name + suffix, [...labels, ...more]);

function suffixesOf(type: Metric['type']): [string, string[]][] {
  return type === 'histogram'
    ? [
        ['_bucket', ['le']],
        ['_sum', []],
        ['_count', []],
      ]
    : [['', []]];
}

/** Every scrape has these. */
const OF_PROMETHEUS = ['job', 'instance'];

/** What an expression names, by Prometheus' own grammar; `mistakes` are places that it does not understand. */
function readExpression(expr: string): {
  mistakes: string[];
  selectors: { name: string; labels: string[] }[];
  grouped: string[];
} {
  const mistakes: string[] = [];
  const selectors: { name: string; labels: string[] }[] = [];
  const grouped: string[] = [];
  parser.parse(expr).iterate({
    enter: ({ node, type }) => {
      const text = expr.slice(node.from, node.to);
      if (type.isError) mistakes.push(expr.slice(Math.max(0, node.from - 10), node.to + 10));
      if (type.name === 'VectorSelector')
        selectors.push({ name: expr.slice(node.firstChild!.from, node.firstChild!.to), labels: [] });
      if (type.name === 'LabelName' && node.parent?.name.endsWith('LabelMatcher')) selectors.at(-1)!.labels.push(text);
      if (type.name === 'LabelName' && node.parent?.name.startsWith('Grouping')) grouped.push(text);
    },
  });
  return { mistakes, selectors, grouped };
}

test('the reader of expressions sees names, labels and mistakes', () => {
  expect(readExpression('sum by (a, le) (rate(x_bucket{b=~"c|d"}[5m])) / y > 1')).toEqual({
    mistakes: [],
    selectors: [
      { name: 'x_bucket', labels: ['b'] },
      { name: 'y', labels: [] },
    ],
    grouped: ['a', 'le'],
  });
  expect(readExpression('sum by (a (x)').mistakes.length).toBeGreaterThan(0);
});

describe('metrics', () => {
  test.each(expressions)('of "$where" exist, with the labels it names', ({ expr, shows }) => {
    const { mistakes, selectors, grouped } = readExpression(expr);
    expect(mistakes).toEqual([]);
    expect(selectors.length).toBeGreaterThan(0);
    const all = new Set(OF_PROMETHEUS);
    for (const { name, labels } of selectors) {
      expect([...series.keys()]).toContain(name);
      for (const label of series.get(name)!) all.add(label);
      for (const label of labels)
        expect([...series.get(name)!, ...OF_PROMETHEUS], `${name}{${label}}`).toContain(label);
    }
    for (const label of grouped) expect([...all]).toContain(label);
    // what is shown of a result is what is left of its labels
    const left = grouped.length > 0 ? grouped : [...all];
    for (const label of shows) expect(left).toContain(label);
  });

  test.each([
    'sluice_ingest_freshness_seconds',
    'sluice_ingest_lag_records',
    'sluice_rollup_dead_letter_share',
    'sluice_ingest_insert_seconds',
    'sluice_rollup_table_fullest_partition_parts',
    'sluice_rollup_differences',
    'sluice_query_requests_total',
    'sluice_query_duration_seconds',
  ])('%s is on the dashboard and has an alert', (name) => {
    expect(queries.some(({ expr }) => expr.includes(name))).toBe(true);
    expect(rules.some(({ expr }) => expr.includes(name))).toBe(true);
  });

  test('no two panels of the dashboard lie on each other', () => {
    for (const [i, a] of panels.entries()) {
      for (const b of panels.slice(i + 1)) {
        const [p, q] = [a.gridPos, b.gridPos];
        expect(
          p.x < q.x + q.w && q.x < p.x + p.w && p.y < q.y + q.h && q.y < p.y + p.h,
          `${a.title} and ${b.title}`,
        ).toBe(false);
      }
    }
  });

  test('Prometheus finds every container of every service, at the port the image has', () => {
    interface Discovery {
      readonly names: readonly string[];
      readonly type: string;
      readonly port: number;
    }
    const config = parse(read('deploy/prometheus/prometheus.yml')) as {
      scrape_configs: readonly { job_name: string; dns_sd_configs: readonly Discovery[]; static_configs?: unknown }[];
    };
    const compose = parse(read('docker-compose.yml'), { merge: true }) as {
      services: Record<string, { build?: string }>;
    };
    const own = Object.entries(compose.services).flatMap(([name, { build }]) => (build === undefined ? [] : [name]));
    expect(config.scrape_configs.map((c) => c.job_name)).toEqual(['sluice']);
    expect(config.scrape_configs[0]!.static_configs).toBeUndefined();
    const [found, ...others] = config.scrape_configs[0]!.dns_sd_configs;
    expect(others).toEqual([]);
    expect(found!.names.toSorted()).toEqual(own.toSorted());
    expect([found!.type, String(found!.port)]).toEqual(['A', /METRICS_PORT=(\d+)/.exec(read('Dockerfile'))![1]!]);
  });

  test('every panel shows its legend, and at the place where Grafana looks for it', () => {
    const shown = panels.filter(({ type }) => type !== 'row');
    expect(shown.length).toBeGreaterThan(15);
    for (const { title, options } of shown)
      expect(options?.legend, title).toMatchObject({ showLegend: true, displayMode: 'table' });
  });
});

/** What a process logs: tests, and the model that `npm run simulate` runs, are none of it. */
const IS_PRODUCT = /^(?!.*\.test\.ts$|ingest\/simulation\/).*\.ts$/;
/** A call of a logger up to its event: its only argument, or the last one. `[level]`: the level is computed. */
const CALL =
  /[lL]ogger(?:\(\))?\??(?:\.(debug|info|warn|error|fatal)|\[level\])\((?:[^]*?,\s+)??(?:[^',(]*\? '([a-z_]+)' : )?'([a-z_]+)',?\s*\)/g;
const LEVELS = ['debug', 'info', 'warn', 'error', 'fatal'];
/** Levels of the events whose calls compute them. */
const COMPUTED: Readonly<Record<string, readonly string[]>> = {
  commit_refused: ['debug', 'warn'],
  kafka_client: ['debug', 'warn', 'error'],
};

/** Returns every event that the product logs, with its levels. */
function loggedEvents(): [event: string, levels: readonly string[]][] {
  const found = new Map<string, Set<string>>();
  const add = (event: string, levels: readonly string[]): void => {
    found.set(event, new Set([...(found.get(event) ?? []), ...levels]));
  };
  for (const folder of ['common', 'services'])
    for (const name of readdirSync(new URL(folder, ROOT), { recursive: true, encoding: 'utf8' })) {
      if (!IS_PRODUCT.test(name)) continue;
      for (const [, level, other, event = ''] of read(`${folder}/${name}`).matchAll(CALL))
        for (const one of other === undefined ? [event] : [other, event])
          add(one, level === undefined ? (COMPUTED[one] ?? []) : [level]);
    }
  for (const [event, level] of Object.entries(LANE_EVENTS)) add(event, [level]);
  return [...found]
    .toSorted(([a], [b]) => a.localeCompare(b))
    .map(([event, levels]) => [event, LEVELS.filter((level) => levels.has(level))]);
}

describe('docs/metrics.md', () => {
  const page = read('docs/metrics.md');
  const sections = new Map(
    page
      .split(/^## /m)
      .slice(1)
      .map((section) => [section.slice(0, section.indexOf('\n')), section]),
  );
  const tableUnder = (title: string): string[] => sections.get(title)?.match(/^\|.*$/gm) ?? [];

  test('has a section for every service, and no other', () => {
    expect([...sections.keys()]).toEqual([...Object.keys(services), 'Every process', 'Log events', 'Renamed']);
  });

  test.each(ofServices)('has the metrics of $service as they are registered', ({ service, metrics }) => {
    expect(tableUnder(service)).toEqual([
      '| metric | type | labels | meaning |',
      '|---|---|---|---|',
      ...metrics.map((m) => `| \`${m.name}\` | ${m.type} | ${m.labels.join(', ')} | ${m.help} |`),
    ]);
  });

  test('has the metrics that every process registers', () => {
    const names = ofProcess.map((m) => `\`${m.name}\``).join(', ');
    expect(sections.get('Every process')).toBe(`Every process\nprom-client registers ${names}.\n\n`);
  });

  test('has every log event with its levels and a meaning', () => {
    const events = loggedEvents();
    for (const [event, levels] of events) expect(levels.length, `the level of ${event}`).toBeGreaterThan(0);
    const rows = tableUnder('Log events').map((row) => row.replace(/ [^|\s][^|]* \|$/, ' MEANING |'));
    expect(rows).toEqual([
      '| event | level | MEANING |',
      '|---|---|---|',
      ...events.map(([event, levels]) => `| \`${event}\` | ${levels.join(', ')} | MEANING |`),
    ]);
  });
});

describe('runbook', () => {
  const runbook = read('docs/runbook.md');

  test('every alert stands once and has its section, and every section its alert', () => {
    const sections = [...runbook.matchAll(/^### (\w+)$/gm)].map(([, name]) => name!);
    expect(sections).toEqual(rules.map((r) => r.alert));
    // of two rules of one name, both would wake somebody
    expect(new Set(sections).size).toBe(sections.length);
    for (const rule of rules) {
      expect(rule.for, rule.alert).toMatch(/^\d+[mh]$/);
      expect(['page', 'ticket']).toContain(rule.labels.severity);
    }
  });

  test.each(rules)('the section of $alert begins with its severity, thresholds and duration', (rule) => {
    const [, head = ''] = new RegExp(`^### ${rule.alert}\n(.*)$`, 'm').exec(runbook) ?? [];
    const [, severity, condition = '', minutes] = /^(Page|Ticket): (.*?),? for (\d+) minutes?\.$/.exec(head) ?? [];
    const [, count, unit] = /^(\d+)([mh])$/.exec(rule.for)!;
    expect([severity?.toLowerCase(), Number(minutes)]).toEqual([
      rule.labels.severity,
      Number(count) * (unit === 'h' ? 60 : 1),
    ]);
    const thresholds = [...condition.matchAll(/`([<>=]+ [\d.]+)`/g)].map(([, threshold]) => threshold!);
    expect(thresholds.length).toBeGreaterThan(0);
    const inRule = [...rule.expr.matchAll(/[<>=]+ [\d.]+/g)].map(([threshold]) => threshold);
    for (const threshold of thresholds) expect(inRule).toContain(threshold);
  });

  test('every section of an alert has something to run or to look at', () => {
    const alerts = runbook.slice(runbook.indexOf('## Alerts'), runbook.indexOf('## Without an alert'));
    for (const section of alerts.split('\n### ').slice(1)) expect(section, section.split('\n')[0]).toMatch(/`[^`]+`/);
  });

  test('every command of the runbook exists, with its flags', () => {
    const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> };
    const options: Record<string, readonly string[]> = Object.fromEntries(
      all
        .filter((c) => !Object.values(c.forms).some((form) => form.hasAnyOption === true))
        .map((c) => [c.name, Object.values(c.forms).flatMap((form) => Object.keys(form.options ?? {}))]),
    );
    const calls = [...runbook.matchAll(/npm run (?:--silent )?([a-z-]+)([^`\n]*)/g)];
    expect(calls.length).toBeGreaterThan(10);
    for (const [call, name, rest] of calls) {
      expect(Object.keys(scripts), call).toContain(name);
      if (options[name!] === undefined) continue;
      for (const [, flag] of rest!.matchAll(/--([a-z-]+)/g))
        expect([...options[name!]!, 'help', 'json', 'url', 'check-config'], call).toContain(flag);
    }
    for (const [path] of runbook.matchAll(/(?:services|deploy)\/[\w./-]+\w/g))
      expect(existsSync(new URL(path, ROOT)), path).toBe(true);
  });

  test('every variable and metric of the runbook exists', () => {
    for (const [name] of runbook.matchAll(/\bsluice_(?:ingest|rollup|query|push)_\w+/g))
      expect([...series.keys()]).toContain(name);
    const ofCompose = [...read('docker-compose.yml').matchAll(/(?:\$\{|^ +)([A-Z]+(?:_[A-Z]+)+)\b/gm)].map(
      ([, name]) => name!,
    );
    for (const [name] of runbook.matchAll(/\b[A-Z]+(?:_[A-Z]+)+\b/g))
      expect([...Object.keys(settingsTable), ...ofCompose], name).toContain(name);
  });
});
