import { defineConfig } from 'vitest/config';

// Before the workers start: there the pool is in use before any module of ours is loaded (common/config/thread-pool.ts).
process.env['UV_THREADPOOL_SIZE'] ??= '16';

// unit: beside the code, opens no socket. integration, e2e: real broker and real engine. faults: the same, with faults on purpose.
// Two files at a time: they wait for a broker as long as they compute, and each brings its own engine, folder and topics.
// retry 0 everywhere: a test that fails once has found something.
export default defineConfig({
  test: {
    retry: 0,
    projects: [
      { test: { name: 'unit', include: ['{common,services,demo,scripts,schemas,bench,deploy}/**/*.test.ts', 'test/{harness,evaluate}/*.test.ts'], retry: 0 } },
      {
        test: {
          name: 'integration',
          include: ['test/{integration,e2e}/**/*.test.ts'],
          globalSetup: ['test/harness/global-setup.ts'],
          maxWorkers: 2,
          sequence: { groupOrder: 1 },
          testTimeout: 120_000,
          hookTimeout: 120_000,
          retry: 0,
        },
      },
      {
        test: {
          name: 'faults',
          include: ['test/faults/**/*.test.ts'],
          globalSetup: ['test/harness/global-setup.ts'],
          maxWorkers: 2,
          sequence: { groupOrder: 2 },
          testTimeout: 120_000,
          hookTimeout: 120_000,
          retry: 0,
        },
      },
    ],
  },
});
