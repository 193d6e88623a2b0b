import { execFile, execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { createClient } from '@redis/client';
import { GenericContainer } from 'testcontainers';
import { readSettings } from '../../common/config/settings.ts';
import { freePort } from '../../common/kafka/local-broker/local-broker.ts';
import { hasDocker } from './choice.ts';
import { temporaryFolder } from './clickhouse.ts';
import { waitFor } from './wait-for.ts';

/** A real Redis for tests, empty. */
export interface TestRedis {
  readonly url: string;
  /** SIGSTOP: connected, and silent */
  freeze(): void;
  thaw(): void;
  stop(): Promise<void>;
}

const IMAGE = 'redis:7.4';
/** redis-server of Debian and what it needs beyond the C library */
const PACKAGES = [
  'redis-server',
  'redis-tools',
  'libhiredis0.14',
  'libjemalloc2',
  'liblua5.1-0',
  'liblzf1',
  'lua-bitop',
  'lua-cjson',
  'libatomic1',
];
const HELP =
  'no Redis to be had: install one (apt-get install redis-server), or start Docker, or set TEST_REDIS_URL to an empty one';

/**
 * Redis of TEST_REDIS_URL, else in a container where Docker answers, else redis-server of this machine, else Debian's,
 * unpacked into the cache folder.
 */
export async function startRedis(): Promise<TestRedis> {
  const given = process.env['TEST_REDIS_URL'];
  if (given !== undefined) return { url: given, freeze: unavailable, thaw: unavailable, stop: () => Promise.resolve() };
  if (await hasDocker()) {
    const container = await new GenericContainer(IMAGE).withExposedPorts(6379).start();
    return {
      url: `redis://${container.getHost()}:${container.getMappedPort(6379)}`,
      freeze: unavailable,
      thaw: unavailable,
      stop: async () => {
        await container.stop();
      },
    };
  }
  return await startServer();
}

function unavailable(): never {
  throw new Error('only a Redis that the test started itself can be stopped for a while');
}

async function startServer(): Promise<TestRedis> {
  const { command, libraries } = findServer() ?? (await unpackServer());
  const port = await freePort();
  const folder = temporaryFolder();
  const child: ChildProcess = spawn(
    command,
    ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no', '--dir', folder.path],
    {
      stdio: 'ignore',
      env: { ...process.env, ...(libraries !== undefined && { LD_LIBRARY_PATH: libraries }) },
    },
  );
  const exited = new Promise<void>((resolve) => {
    child.once('exit', () => resolve());
  });
  const url = `redis://127.0.0.1:${port}`;
  await waitFor(
    async () => {
      const client = createClient({ url, socket: { reconnectStrategy: false } });
      client.on('error', () => {});
      try {
        await client.connect();
        return (await client.ping()) === 'PONG';
      } finally {
        client.destroy();
      }
    },
    10_000,
    `${command} answers`,
  );
  return {
    url,
    freeze: () => {
      child.kill('SIGSTOP');
    },
    thaw: () => {
      child.kill('SIGCONT');
    },
    stop: async () => {
      child.kill('SIGCONT');
      child.kill('SIGTERM');
      await exited;
      folder.remove();
    },
  };
}

interface Server {
  readonly command: string;
  /** for LD_LIBRARY_PATH */
  readonly libraries: string | undefined;
}

function findServer(): Server | undefined {
  try {
    return {
      command: execFileSync('sh', ['-c', 'command -v redis-server'], { encoding: 'utf8' }).trim(),
      libraries: undefined,
    };
  } catch {
    return undefined;
  }
}

/** Nothing of the system changes: the packages are only unpacked. */
async function unpackServer(): Promise<Server> {
  const folder = join(readSettings().CACHE_DIR, 'redis');
  const command = join(folder, 'usr/bin/redis-server');
  const run = promisify(execFile);
  if (!existsSync(command)) {
    mkdirSync(folder, { recursive: true });
    try {
      await run('apt-get', ['download', '-qq', ...PACKAGES], { cwd: folder }).catch(async () => {
        await run('apt-get', ['update', '-qq']);
        await run('apt-get', ['download', '-qq', ...PACKAGES], { cwd: folder });
      });
      for (const file of readdirSync(folder).filter((f) => f.endsWith('.deb')))
        await run('dpkg-deb', ['-x', join(folder, file), folder]);
    } catch (error) {
      rmSync(folder, { recursive: true, force: true });
      throw new Error(HELP, { cause: error });
    }
  }
  const lib = join(folder, 'usr/lib');
  const libraries = readdirSync(lib)
    .filter((name) => name.endsWith('-linux-gnu'))
    .map((name) => join(lib, name))
    .join(':');
  return { command, libraries };
}
