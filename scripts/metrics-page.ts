import { writeFileSync } from 'node:fs';
import { createRegistry, type Registry } from '../common/metrics.ts';
import { watchReadiness } from '../common/readiness.ts';
import { createIngestMetrics } from '../services/ingest/metrics.ts';
import { createPushMetrics } from '../services/push/metrics.ts';
import { createQueryMetrics } from '../services/query/metrics.ts';
import { createRollupMetrics } from '../services/rollup/metrics.ts';

/** docs/metrics.md, made from what the services register. `npm run metrics-page` makes it anew. */
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
      type?: string;
      labelNames?: readonly string[];
      constructor: { name: string };
    }[]
  ).map((m) => ({ name: m.name, type: m.constructor.name.toLowerCase(), help: m.help, labels: m.labelNames ?? [] }));
}

const WHERE: Readonly<Record<string, string>> = {
  ingest: 'Per process: each partition belongs to one of them.',
  rollup: 'One process for the installation; what it says of tables is true for all of it, and looked up every 30 s.',
  query:
    'Per process. `endpoint` is the name of a definition, or `other`; `cache` is what the header `x-cache` says; status 499 is a caller that left before its answer.',
  push: 'Per process, beside query where KAFKA_BROKERS is set.',
  readiness:
    'Per process. `check` is `clickhouse` in every process, `consumer` where ingest runs, `rollups` where rollup runs, `endpoints` and `keys` where query runs.',
};

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
  return `# Metrics

Made by \`npm run metrics-page\` from what the services register; a test compares. \`npm start\` serves all of them at \`/metrics\`; a query service its own there, and
every service its own at \`METRICS_PORT\`. Names are \`sluice_<service>_<what>_<unit>\`; no label holds anything that a caller or a producer wrote.
Freshness is now minus the record's time in Kafka, at the moment at which the record became visible to queries. \`deploy/prometheus/\` has what Prometheus scrapes and
the alerts (each in [runbook.md](runbook.md)), \`deploy/grafana/sluice.json\` the dashboard.

${sections.join('\n\n')}

## Of every process
${process?.map((m) => `\`${m.name}\``).join(', ')}: by prom-client.
`;
}

export const METRICS_PAGE = new URL('../docs/metrics.md', import.meta.url);

if (import.meta.main) writeFileSync(METRICS_PAGE, metricsMarkdown());
