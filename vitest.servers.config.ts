import { defineConfig } from 'vitest/config';
import { onClickHouse } from './vitest.config.ts';

// `npm run test:servers`: the suites that meet an engine on a plain and a hostile 25.8 and on a plain 26.7, and two of
// them on a hostile 26.7. The default configuration runs them on the embedded engine. The other projects below have
// npm scripts of their own (package.json).
const SUITES = ['test/{integration,faults}/**/*.test.ts', 'test/e2e/oracle.test.ts'];

export default defineConfig({
  test: {
    retry: 0,
    projects: [
      onClickHouse('server-25.8', '25.8 plain', SUITES, 1),
      onClickHouse('server-25.8-hostile', '25.8 hostile', SUITES, 2),
      // it has nowhere to put the users that two suites make
      onClickHouse(
        'server-26.7',
        '26.7 plain',
        [
          'test/integration/!(clickhouse)/**/*.test.ts',
          'test/integration/*.test.ts',
          'test/integration/clickhouse/!(rights).test.ts',
          'test/faults/!(kill-stack).test.ts',
          'test/e2e/oracle.test.ts',
        ],
        3,
      ),
      // settings that only 26.7 knows change answers
      onClickHouse('server-26.7-hostile', '26.7 hostile', ['test/integration/query/{cases,odd-data}.test.ts'], 8),
      // the same on two replicas of one shard, and what only a cluster can suffer: one file at a time
      onClickHouse(
        'cluster',
        '25.8 pair',
        ['test/cluster/**/*.test.ts', 'test/e2e/oracle.test.ts', 'test/integration/rollup/order.test.ts'],
        5,
        1,
      ),
      // two shards of two replicas, which the file starts; and the answers of two shards of one
      onClickHouse('shards', 'embedded', ['test/shards/**/*.test.ts'], 6, 1),
      onClickHouse('shards-oracle', '25.8 shards', ['test/e2e/oracle.test.ts'], 7, 1),
      onClickHouse('versions', 'embedded', ['test/versions/**/*.test.ts'], 4),
      // builds the Dockerfile: minutes, and as root
      onClickHouse('image', 'embedded', ['test/image/**/*.test.ts'], 6, 1),
    ],
  },
});
