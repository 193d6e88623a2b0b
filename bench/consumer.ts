import { fork } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { Read } from '../common/clickhouse/clickhouse.ts';
import { temporaryFolder } from '../test/harness/clickhouse.ts';
import type { Contestant, FromConsumer, ToConsumer } from './consumer-process.ts';
import { statement } from './filled.ts';

export interface Consumer {
  readonly pid: number;
  readonly version: string;
  consume(): void;
  read(read: Read): Promise<string>;
  /** the only row of a statement of the benches */
  row<T>(name: string): Promise<T>;
  /** the process and its data are gone */
  end(): Promise<void>;
}

const PROCESS = fileURLToPath(new URL('consumer-process.ts', import.meta.url));

/**
 * A contestant on an empty engine, ready to consume as a group that never was: all there is, and no dead member is
 * waited for.
 */
export async function startConsumer({
  env,
  ...contestant
}: Omit<Contestant, 'env'> & {
  readonly env: Omit<Contestant['env'], 'DATA_DIR' | 'KAFKA_GROUP_ID'>;
}): Promise<Consumer> {
  const folder = temporaryFolder();
  const child = fork(
    PROCESS,
    [
      JSON.stringify({
        ...contestant,
        env: { ...env, DATA_DIR: folder.path, KAFKA_GROUP_ID: `bench-${randomUUID()}` },
      } satisfies Contestant),
    ],
    { execArgv: ['--no-warnings'], stdio: ['ignore', 'ignore', 'inherit', 'ipc'] },
  );
  const waiting = new Map<number, PromiseWithResolvers<string>>();
  const ready = Promise.withResolvers<string>();
  child.on('message', (message: FromConsumer) => {
    if (message.kind === 'ready') return ready.resolve(message.version);
    const asked = waiting.get(message.id);
    waiting.delete(message.id);
    if (message.body === undefined) asked?.reject(new Error(message.error));
    else asked?.resolve(message.body);
  });
  const exited = once(child, 'exit');
  child.once('exit', (code) => {
    const error = new Error(`the process of ${contestant.kind} ended with ${code}`);
    ready.reject(error);
    for (const { reject } of waiting.values()) reject(error);
  });
  const tell = (message: ToConsumer): void => {
    child.send(message);
  };
  let reads = 0;
  const read = (what: Read): Promise<string> => {
    const asked = Promise.withResolvers<string>();
    waiting.set(++reads, asked);
    tell({ kind: 'read', id: reads, read: what });
    return asked.promise;
  };
  const version = await ready.promise;
  return {
    pid: child.pid!,
    version,
    consume: () => tell({ kind: 'consume' }),
    read,
    row: async <T>(name: string) => JSON.parse(await read({ sql: statement(name), format: 'JSONEachRow' })) as T,
    end: async () => {
      child.kill('SIGKILL');
      await exited;
      folder.remove();
    },
  };
}
