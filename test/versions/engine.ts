import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { unpackWheels } from '../harness/clickhouse-library.ts';

interface VersionEngine {
  /** for CLICKHOUSE_URL */
  readonly url: string;
  stop(): Promise<void>;
}

const SCRIPT = fileURLToPath(new URL('engine.py', import.meta.url));

/**
 * Starts the engine of a wheel of PyPI (`chdb-core==26.1.0`) in a process of its own, in this folder. One statement at
 * a time.
 */
export async function startVersion(wheel: string, dataDir: string): Promise<VersionEngine> {
  const library = join(await unpackWheels([wheel]), 'chdb', '_chdb.abi3.so');
  const child = spawn('python3', [SCRIPT, library, dataDir], { stdio: ['pipe', 'pipe', 'ignore'] });
  const exited = once(child, 'exit');
  const first = await Promise.race([once(createInterface({ input: child.stdout }), 'line'), exited]);
  if (child.exitCode !== null) throw new Error(`the engine of ${wheel} ended at its start with ${child.exitCode}`);
  return {
    url: `http://default@127.0.0.1:${String(first[0])}/sluice`,
    stop: async () => {
      child.stdin.end();
      await exited;
    },
  };
}
