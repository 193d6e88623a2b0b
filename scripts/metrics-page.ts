import { writeFileSync } from 'node:fs';
import { createRegistry, type Registry } from '../common/metrics.ts';
import { watchReadiness } from '../common/readiness.ts';
import { createIngestMetrics } from '../services/ingest/metrics.ts';
import { createPushMetrics } from '../services/push/metrics.ts';
import { createQueryMetrics } from '../services/query/metrics.ts';
import { createRollupMetrics } from '../services/rollup/metrics.ts';
import { logEventsMarkdown } from './log-events.ts';

/** docs/metrics.md: what the services register, and what they log. `npm run metrics-page` writes it. */
export interface Metric {
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

/** The metrics of each service; those of the process itself, which all have, under `process`. */
export function metricsOf(): Readonly<Record<string, readonly Metric[]>> {
  const process = namesIn(createRegistry());
  const known = new Set(process.map((m) => m.name));
  const own = Object.entries(services).map(([service, create]) => {
    const registry = createRegistry();
    create(registry);
    return [service, namesIn(registry).filter((m) => !known.has(m.name))] as const;
  });
  return { ...Object.fromEntries(own), process };
}

function namesIn(registry: Registry): Metric[] {
  return (
    registry.getMetricsAsArray() as unknown as {
      name: string;
      help: string;
      labelNames?: readonly string[];
      constructor: { name: string };
    }[]
  ).map((m) => ({ name: m.name, type: m.constructor.name.toLowerCase(), help: m.help, labels: m.labelNames ?? [] }));
}

const WHERE: Readonly<Record<string, string>> = {
  ingest: 'Per process. Each partition belongs to one process.',
  rollup: 'One process for the installation. It reads the state of all tables every 30 s.',
  query:
    'Per process. `endpoint` is the name of a definition, or `other`. `cache` is the value of the header `x-cache`. Status 499 means that the caller left before its answer.',
  push: 'Per process, beside query if KAFKA_BROKERS is set.',
  readiness:
    'Per process. `check` is `clickhouse` in every process, `consumer` beside ingest, `rollups` beside rollup, `endpoints` and `keys` beside query.',
};

const RENAMED = `## Renamed
| until 0.1.0 | now |
|---|---|
| metric \`sluice_query_requests_under_way\` | \`sluice_query_requests_in_flight\` |
| metric \`sluice_query_sending_bytes\` | \`sluice_query_response_memory_bytes\` |
| log \`redis_away\`, \`redis_back\` | \`redis_unavailable\`, \`redis_recovered\` |
| log \`keys_not_loaded\`, \`keys_loaded_again\` | \`keys_load_failed\`, \`keys_load_recovered\` |
| log \`key_uses_not_noted\` | \`key_use_update_failed\` |
| log \`endpoints_not_reloaded\` | \`endpoints_reload_failed\` |
| log \`stop_deadline_passed\`, field \`parts\` | \`components\` |
| log \`clickhouse_write_goes_on\` | \`clickhouse_write_running\` |
`;

export function metricsMarkdown(): string {
  const { process, ...own } = metricsOf();
  const sections = Object.entries(own).map(([service, metrics]) =>
    [
      `## ${service}`,
      WHERE[service] ?? '',
      '',
      '| metric | type | labels | meaning |',
      '|---|---|---|---|',
      ...metrics.map((m) => `| \`${m.name}\` | ${m.type} | ${m.labels.join(', ')} | ${m.help} |`),
    ].join('\n'),
  );
  return `# Metrics and log events

\`npm run metrics-page\` makes this page from what the services register and log; a test compares. \`npm start\` serves all metrics at \`/metrics\`. A query
service serves its own at \`/metrics\` of PORT, or of \`METRICS_PORT\` if that is set. Ingest and rollup serve theirs only at \`METRICS_PORT\`. Names are
\`sluice_<service>_<what>_<unit>\`. No label contains text from a caller or a producer.
Freshness is the age of a record, by its time in Kafka, when it becomes visible to queries. \`deploy/prometheus/\` has the scrape
configuration and the alerts (each in [runbook.md](runbook.md)), \`deploy/grafana/sluice.json\` the dashboard.

${sections.join('\n\n')}

## Every process
prom-client registers ${process?.map((m) => `\`${m.name}\``).join(', ')}.

## Log events
A line is JSON with \`level\` (10 trace, 20 debug, 30 info, 40 warn, 50 error, 60 fatal), \`time\`, the event in \`msg\`, and its fields. In a terminal, \`npm start\`
writes readable lines. \`LOG_LEVEL\` sets the least level. Where the table names no step, there is nothing to do.

${logEventsMarkdown()}

${RENAMED}`;
}

export const METRICS_PAGE = new URL('../docs/metrics.md', import.meta.url);

if (import.meta.main) writeFileSync(METRICS_PAGE, metricsMarkdown());
