import { rmSync } from 'node:fs';
import { createLogger } from '../../logger.ts';
import type { Read } from '../clickhouse.ts';
import { openEmbedded } from './embedded.ts';
import { fromSystem } from '../errors.ts';
import type { FromIsolated } from './isolated.ts';

// The process of isolated.ts: an engine without tables in its own folder. It ends with its parent.
const tell = (message: FromIsolated): void => {
  process.send?.(message);
};
process.on('disconnect', () => {
  rmSync(process.argv[2] ?? '', { recursive: true, force: true });
  process.kill(process.pid, 'SIGKILL');
});
// ctrl-C reaches the whole group, but the parent decides when this process ends
process.on('SIGINT', () => undefined);

const clickhouse = await openEmbedded({
  dataDir: process.argv[2] ?? '',
  logger: createLogger('silent'),
  readers: 1,
  writers: 1,
  isolatedHere: true,
});
process.on('message', (read: Omit<Read, 'signal'>) => {
  clickhouse.read({ ...read, isolated: true }).then(
    (result) => tell({ result }),
    (error: unknown) => {
      const { message, code, codeName, kind, outcome } = fromSystem(error, false, true);
      tell({ failure: { message, code, codeName, kind, outcome } });
    },
  );
});
tell({});
