import { tmpdir } from 'node:os';
import { fileURLToPath } from 'node:url';
import { defineConfig, type TestProjectInlineConfiguration } from 'vitest/config';
import type { Run } from './test/harness/clickhouse-run.ts';
import { memoryFolder } from './test/harness/memory-folder.ts';

// Before the workers start: there the pool is in use before any module of ours is loaded
// (common/config/thread-pool.ts).
process.env['UV_THREADPOOL_SIZE'] ??= '16';
// each file runs in a process of its own, which compiles the modules that it loads: 8 % of the unit tests' CPU
process.env['NODE_COMPILE_CACHE'] ??= fileURLToPath(new URL('node_modules/.cache/node', import.meta.url));
// never undefined: the environment would hold that as text
process.env['TMPDIR'] ??= memoryFolder() ?? tmpdir();

/** Suites that need a broker and an engine; they run on the ClickHouse of `run`. */
export function onClickHouse(
  name: string,
  run: Run,
  include: readonly string[],
  groupOrder: number,
  maxWorkers = 3,
): TestProjectInlineConfiguration {
  return {
    test: {
      name,
      include: [...include],
      env: { TEST_CLICKHOUSE: run },
      globalSetup: ['test/harness/global-setup.ts'],
      maxWorkers,
      sequence: { groupOrder },
      testTimeout: 120_000,
      hookTimeout: 120_000,
      retry: 0,
    },
  };
}

// unit: beside the code and the harness, needs no broker and no engine. integration, e2e: real broker and real engine.
// faults: the same, with faults on purpose.
// Three files at a time, of all projects: those that wait for a broker beside those that compute. Each brings its own
// engine, folder and topics.
// browser: a real browser on a real service.
// retry 0 everywhere: a test that fails once has found something.
// server, hostile: the guarantees that depend on the server, on a genuine one under a plain and under a hostile
// profile: deduplication by token, dead letters, delivery through kills, and every endpoint's answers. cluster: two
// replicas with ZooKeeper, which the file starts, kills and lets lag.
// Many tests start a server of their own (test/harness/clickhouse-server.ts). They run in integration and faults, on
// 25.8 unless they name versions: canary, rights, own-server, server, long-writes, clickhouse-away.
// The whole suites on every server: vitest.servers.config.ts.
const INGEST = [
  'test/integration/ingest/{dead-letters,examples,marks,open-replays,reconcile,replays-at-once,token-semantics}.test.ts',
];

export default defineConfig({
  test: {
    retry: 0,
    projects: [
      {
        test: {
          name: 'unit',
          include: [
            '{common,services,demo,scripts,schemas,bench,deploy}/**/*.test.ts',
            'test/{harness,evaluate}/*.test.ts',
          ],
          // by default vitest leaves one core free: on a machine with two it took 144 s, and 89 s with both
          maxWorkers: '100%',
          retry: 0,
        },
      },
      onClickHouse('integration', 'embedded', ['test/{integration,e2e}/**/*.test.ts'], 1),
      // kill-stack starts a genuine server in any case: the hostile one below
      onClickHouse('faults', 'embedded', ['test/faults/!(kill-stack).test.ts'], 1),
      onClickHouse('server', '25.8 plain', [...INGEST, 'test/e2e/oracle.test.ts'], 1),
      onClickHouse(
        'hostile',
        '25.8 hostile',
        [
          ...INGEST,
          'test/integration/rollup/{oracle,order,reads,service,window}.test.ts',
          'test/integration/query/{answers,contract}.test.ts',
          'test/faults/kill-stack.test.ts',
          'test/e2e/oracle.test.ts',
        ],
        1,
      ),
      onClickHouse('cluster', 'embedded', ['test/cluster/cluster.test.ts'], 1),
      // a browser beside a service takes both cores
      onClickHouse('browser', 'embedded', ['test/browser/**/*.test.ts'], 2, 1),
    ],
  },
});
