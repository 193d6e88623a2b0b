import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { createLogger } from '../../../common/logger.ts';
import { temporaryFolder } from '../../../test/harness/temporary-folder.ts';
import { serveDefinitions } from './served-definitions.ts';

test('a reload is told with the definitions that are served from then on; of wrong files nothing is told, and the old ones stay', async () => {
  const folder = temporaryFolder();
  try {
    const told: unknown[] = [];
    const served = serveDefinitions(
      [folder.path],
      { read: () => Promise.reject(new Error('there is no definition to check')) },
      createLogger('silent'),
      (definitions) => told.push(definitions),
    );
    const first = served.current();
    writeFileSync(join(folder.path, 'mine.yaml'), 'id: 1\n');
    await served.reload();
    expect([told, served.current()]).toEqual([[], first]);
    expect(served.current()).toBe(first);
    rmSync(join(folder.path, 'mine.yaml'));
    await served.reload();
    expect(told).toHaveLength(1);
    expect(served.current()).not.toBe(first);
    expect(told[0]).toBe(served.current());
  } finally {
    folder.remove();
  }
});
