import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import autocannon, { type Outcome } from 'autocannon';
import { temporaryFolder } from '../test/harness/clickhouse.ts';
import { openFilled, SEED } from './filled.ts';
import { report } from './report.ts';
import { API_KEY } from './service.ts';

const EVENTS = 200_000;
const SECONDS = 15;
const WARM_UP_SECONDS = 3;

const OPENING_MS = 1_000;

/**
 * Loads one address and throws unless every answer was a 200. `open`: the times of answers on connections that were
 * open already, milliseconds:
 * all connections come at once, and Node takes one in each turn of its event loop.
 */
export async function load(
  url: string,
  options: { connections: number; seconds: number; rate?: number; headers?: Record<string, string> },
): Promise<Outcome & { readonly open: readonly number[] }> {
  const { connections, seconds, rate, headers } = options;
  const from = performance.now();
  const open: number[] = [];
  const running = autocannon({
    url,
    connections,
    duration: seconds,
    headers: { 'x-api-key': API_KEY, ...headers },
    ...(rate !== undefined && { overallRate: rate }),
  });
  running.on('response', (_client, _status, _bytes, milliseconds) => {
    if (performance.now() - milliseconds - from > OPENING_MS) open.push(milliseconds);
  });
  const outcome = await running;
  if (outcome.errors + outcome.timeouts + outcome.non2xx > 0)
    throw new Error(
      `${outcome.errors} errors, ${outcome.timeouts} timeouts, ${outcome.non2xx} answers that are no 200`,
    );
  return { ...outcome, open };
}

/**
 * Cached answers of one query process, the load generator on the same cores: how many a second, and how late at 1,000 a
 * second.
 */
export async function benchCached(): Promise<void> {
  const folder = temporaryFolder();
  const { clickhouse, refs } = await openFilled(folder.path, EVENTS);
  const engine = clickhouse.version;
  await clickhouse.close();
  const child = fork(fileURLToPath(new URL('query-process.ts', import.meta.url)), {
    env: { ...process.env, DATA_DIR: folder.path, API_KEY, PORT: '0' },
  });
  try {
    const [address] = (await once(child, 'message')) as [string];
    const day = `${address}/api/endpoints/functions.invocation-stats?project=${refs[0]}`;
    await load(day, { connections: 50, seconds: WARM_UP_SECONDS });
    const most = await load(day, { connections: 50, seconds: SECONDS });
    const steady = await load(day, { connections: 50, seconds: SECONDS, rate: 1_000 });
    const large = await load(`${day}&interval=5min`, { connections: 50, seconds: SECONDS });
    const compressed = await load(`${day}&interval=5min`, {
      connections: 50,
      seconds: SECONDS,
      headers: { 'accept-encoding': 'gzip, br' },
    });
    report({
      bench: 'cached',
      seed: SEED,
      engine,
      measurements: [
        {
          what: 'answers of 25 rows, 50 connections',
          value: most.requests.average,
          unit: 'requests/s',
          goal: { atLeast: 10_000 },
        },
        { what: 'the same, p50', value: most.latency.p50, unit: 'ms' },
        { what: 'the same, p99', value: most.latency.p99, unit: 'ms' },
        { what: 'at 1,000 requests/s, p50', value: steady.latency.p50, unit: 'ms' },
        { what: 'at 1,000 requests/s, p99', value: steady.latency.p99, unit: 'ms', goal: { atMost: 10 } },
        { what: 'answers of 301 rows, 50 connections', value: large.requests.average, unit: 'requests/s' },
        { what: 'the same, compressed', value: compressed.requests.average, unit: 'requests/s' },
      ],
    });
  } finally {
    const ended = once(child, 'exit');
    if (child.connected) child.disconnect();
    await ended;
    folder.remove();
  }
}
