import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { fromSystem } from '../../../common/clickhouse/errors.ts';
import { createLogger, type Logger } from '../../../common/logger.ts';
import { temporaryFolder } from '../../../test/harness/temporary-folder.ts';
import { waitFor } from '../../../test/harness/wait-for.ts';
import { BUILT_IN } from './definition-files.ts';
import { serveDefinitions } from './served-definitions.ts';

test('a reload serves the definitions that it read; of wrong files none, and the old ones stay', async () => {
  const folder = temporaryFolder();
  try {
    const served = serveDefinitions(
      [folder.path],
      { read: () => Promise.reject(new Error('there is no definition to check')) },
      createLogger('silent'),
    );
    const first = served.current();
    writeFileSync(join(folder.path, 'mine.yaml'), 'id: 1\n');
    await served.reload();
    expect(served.current()).toBe(first);
    rmSync(join(folder.path, 'mine.yaml'));
    await served.reload();
    expect(served.current()).not.toBe(first);
  } finally {
    folder.remove();
  }
});

test('a first check that ClickHouse does not answer is retried; the log says why once, and /readyz too', async () => {
  let attempts = 0;
  const lines: unknown[] = [];
  const warn = (fields: unknown, event: string): void => void lines.push([event, fields]);
  const served = serveDefinitions(
    [BUILT_IN],
    {
      read: async () => {
        attempts++;
        throw fromSystem(Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' }), true, false);
      },
    },
    { ...createLogger('silent'), warn } as unknown as Logger,
  );
  expect(await served.check()).toBe('are not checked yet');
  const stopping = new AbortController();
  void served.checkFirst(Promise.resolve(), stopping.signal);
  await waitFor(() => lines.length > 0, 5_000, 'the first failure is logged');
  const first = attempts;
  expect(await served.check()).toBe('are not checked yet (ECONNREFUSED)');
  await waitFor(() => attempts > first, 5_000, 'it is tried again');
  stopping.abort();
  expect(lines).toEqual([['endpoints_check_failed', { reason: 'connect ECONNREFUSED' }]]);
});
