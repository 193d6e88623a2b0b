import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { freePort } from '../../../common/kafka/local-broker/local-broker.ts';
import { sources } from '../../../common/sources.ts';
import { temporaryFolder } from '../../harness/clickhouse.ts';
import { kafkaBrokers, uniqueName } from '../../harness/kafka.ts';
import { endAll, startScript, startSluice, type RunningSluice } from '../../harness/service.ts';
import { prometheus } from '../../harness/tools.ts';
import { waitFor } from '../../harness/wait-for.ts';

// Guarantee: on a healthy system with traffic every panel of the dashboard shows something, and no alert is pending.
// A Prometheus of its own scrapes `npm start` while `npm run demo` sends events and callers ask and push.

/** The tables are looked at every 30 seconds, and a partition that trickles moves every ten. */
const SEEN_MS = 45_000;

const DEPLOY = new URL('../../../deploy/', import.meta.url);

interface Panel {
  readonly title: string;
  readonly targets?: readonly { readonly expr: string; readonly legendFormat: string }[];
}

const { panels } = JSON.parse(readFileSync(new URL('grafana/sluice.json', DEPLOY), 'utf8')) as {
  panels: readonly Panel[];
};
const queries = panels.flatMap(({ title, targets = [] }) =>
  targets.map(({ expr, legendFormat }) => [title, legendFormat, expr] as const),
);
const { groups } = parse(readFileSync(new URL('prometheus/alerts.yml', DEPLOY), 'utf8')) as {
  groups: readonly { rules: readonly { alert: string; expr: string }[] }[];
};
/** What these look at depends on how fast the machine of the tests is. */
const ABOUT_SPEED = ['SluiceInsertsSlow', 'SluiceQueriesSlow', 'SluiceStale', 'SluiceLag'];
const alerts = groups
  .flatMap((g) => g.rules.map(({ alert, expr }) => [alert, expr] as const))
  .filter(([alert]) => !ABOUT_SPEED.includes(alert));

const folder = mkdtempSync(join(tmpdir(), 'sluice-dashboard-'));
const data = temporaryFolder();
let sluice: RunningSluice;
let server: ChildProcess | undefined;
let port: number;

/** Labels and value of what Prometheus answers. */
async function ask(
  expr: string,
): Promise<{ readonly metric: Readonly<Record<string, string>>; readonly value: number }[]> {
  const response = await fetch(
    `http://127.0.0.1:${port}/api/v1/query?${new URLSearchParams({ query: expr }).toString()}`,
  );
  const {
    status,
    error,
    data: answer,
  } = (await response.json()) as {
    status: string;
    error?: string;
    data: { result: { metric: Record<string, string>; value: [number, string] }[] };
  };
  expect(status, error).toBe('success');
  return answer.result.map(({ metric, value: [, value] }) => ({ metric, value: Number(value) }));
}

beforeAll(async () => {
  const programs = await prometheus();
  const suffix = uniqueName('dashboard');
  const settings = {
    DATA_DIR: data.path,
    KAFKA_BROKERS: kafkaBrokers().join(','),
    KAFKA_GROUP_ID: suffix,
    PORT: '0',
    API_KEY: 'dashboard-test-key',
    LOG_LEVEL: 'warn',
    KAFKA_TOPICS: sources.map((s) => `${s.name}=${s.name}.${suffix}`).join(','),
  };
  sluice = await startSluice(settings);
  port = await freePort();
  const config = parse(readFileSync(new URL('prometheus/prometheus.yml', DEPLOY), 'utf8')) as {
    scrape_configs: Record<string, unknown>[];
  };
  const { dns_sd_configs: _dns, relabel_configs: _relabel, ...scrape } = config.scrape_configs[0]!;
  const file = join(folder, 'prometheus.yml');
  writeFileSync(
    file,
    JSON.stringify({
      scrape_configs: [
        { ...scrape, scrape_interval: '1s', static_configs: [{ targets: [new URL(sluice.address).host] }] },
      ],
    }),
  );
  server = spawn(
    programs.prometheus,
    [
      `--config.file=${file}`,
      `--storage.tsdb.path=${join(folder, 'data')}`,
      `--web.listen-address=127.0.0.1:${port}`,
      '--log.level=error',
    ],
    { stdio: 'ignore' },
  );

  const demo = startScript('demo', { ...settings, PORT: new URL(sluice.address).port }, ['--rate', '200']);
  const project = await waitFor(() => /busiest project (\w+)/.exec(demo.stderr())?.[1], 20_000, 'the traffic begins');
  const push = async (): Promise<number> => {
    const response = await fetch(`${sluice.address}/api/logs?source_name=edge_logs`, {
      method: 'POST',
      headers: { 'x-api-key': sluice.key, 'content-type': 'application/json' },
      body: JSON.stringify({ message: 'pushed', project, timestamp: new Date().toISOString() }),
    });
    return response.status;
  };
  const until = performance.now() + 20_000;
  while (performance.now() < until) {
    const [status] = await Promise.all([
      push(),
      sluice.ask('logs.all', { project }),
      sluice.ask('usage.api-counts', { project, interval: 'hourly' }),
      sluice.ask('functions.invocation-stats', { project, interval: '1hr' }),
    ]);
    expect(status).toBe(200);
    await sleep(500);
  }
}, 6 * 60_000);

afterAll(async () => {
  const scraping = server;
  const ended =
    scraping === undefined
      ? undefined
      : new Promise((resolve) => {
          scraping.once('close', resolve);
        });
  scraping?.kill('SIGTERM');
  await Promise.all([ended, endAll()]);
  rmSync(folder, { recursive: true, force: true });
  data.remove();
});

describe('dashboard', () => {
  test.each(queries)('%s (%s) shows something', async (title, legend, expr) => {
    const labels = [...legend.matchAll(/\{\{(\w+)\}\}/g)].map(([, label]) => label!);
    const shown = await waitFor(
      async () => {
        const finite = (await ask(expr)).filter(({ value }) => Number.isFinite(value));
        return finite.length > 0 && finite;
      },
      SEEN_MS,
      `${title}: ${expr}`,
    );
    // a label that is shown and empty names nothing
    for (const label of labels)
      expect(
        shown.some(({ metric }) => (metric[label] ?? '') !== ''),
        `${title}: {{${label}}}`,
      ).toBe(true);
  });
});

describe('alerts', () => {
  test.each(alerts)('%s is not even pending', async (name, expr) => {
    expect(await waitFor(async () => (await ask(expr)).length === 0, SEEN_MS, `${name} is silent`)).toBe(true);
  });
});
