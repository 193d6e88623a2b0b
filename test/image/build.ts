import { execFile } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { fetched } from '../harness/tools.ts';

export const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const run = promisify(execFile);
/** a build prints what npm prints */
const OPTIONS = { maxBuffer: 64 * 1024 * 1024 };
const INSTALL = 'run as root: apt-get install --no-install-recommends buildah debootstrap';
/** where the base image keeps the certificates that this machine trusts */
const CERTIFICATES = '/usr/local/share/ca-certificates.crt';

export interface Image {
  /** the image's file system */
  readonly folder: string;
  readonly config: {
    readonly User: string;
    readonly Env: readonly string[];
    readonly Entrypoint: readonly string[];
    readonly WorkingDir: string;
    readonly StopSignal: string;
    readonly Volumes?: object;
    readonly Healthcheck: { readonly Test: readonly string[] };
  };
  remove(): Promise<void>;
}

/**
 * Builds the Dockerfile by buildah, on a base image made here: Debian by debootstrap, Node.js of the package `node`,
 * the npm of this machine.
 * No registry of images is asked. Throws an error with the command to run where a program or a right is missing.
 */
export async function buildImage(): Promise<Image> {
  if (process.getuid?.() !== 0)
    throw new Error(
      `The image test makes and mounts file systems, which only root may; ${INSTALL}, then run it as root`,
    );
  for (const program of ['buildah', 'debootstrap', 'unshare', 'setpriv']) {
    await run(program, ['--version']).catch((error: unknown) => {
      throw new Error(`The image test needs ${program}; ${INSTALL}`, { cause: error });
    });
  }
  const [base] = new Set(
    readFileSync(join(ROOT, 'Dockerfile'), 'utf8')
      .split('\n')
      .flatMap((line) => /^FROM (\S+)/.exec(line)?.[1] ?? []),
  );
  if (base === undefined) throw new Error('the Dockerfile has no FROM');
  const archive = join(
    await fetched(
      `image-${base.replace(':', '-')}`,
      makeBase,
      'debootstrap --variant=minbase bookworm FOLDER',
      'a base image',
    ),
    'base.tar',
  );

  const store = mkdtempSync(join(tmpdir(), 'sluice-image-'));
  const policy = join(store, 'policy.json');
  writeFileSync(policy, '{"default":[{"type":"insecureAcceptAnything"}]}');
  const buildah = async (...args: string[]): Promise<string> =>
    (
      await run(
        'buildah',
        ['--storage-driver', 'vfs', '--root', join(store, 'root'), '--runroot', join(store, 'run'), ...args],
        { ...OPTIONS, cwd: ROOT },
      )
    ).stdout.trim();
  try {
    const empty = await buildah('from', '--signature-policy', policy, 'scratch');
    await buildah('add', empty, archive, '/');
    await buildah(
      'config',
      '--env',
      'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
      '--env',
      `NODE_EXTRA_CA_CERTS=${CERTIFICATES}`,
      empty,
    );
    await buildah('commit', '--quiet', '--signature-policy', policy, '--rm', empty, `docker.io/library/${base}`);
    await buildah(
      'bud',
      '--quiet',
      '--signature-policy',
      policy,
      '--isolation',
      'chroot',
      '--pull-never',
      '--layers=false',
      '--format',
      'docker',
      '--tag',
      'sluice:test',
      '.',
    );
    const built = await buildah('from', '--signature-policy', policy, '--pull-never', 'localhost/sluice:test');
    const folder = await buildah('mount', built);
    const { Docker } = JSON.parse(await buildah('inspect', '--type', 'image', 'localhost/sluice:test')) as {
      Docker: { config: Image['config'] };
    };
    return {
      folder,
      config: Docker.config,
      remove: async () => {
        await buildah('umount', built);
        rmSync(store, { recursive: true, force: true });
      },
    };
  } catch (error) {
    rmSync(store, { recursive: true, force: true });
    throw error;
  }
}

/**
 * A stand-in for the official image of Node.js: the same Debian, the same version of Node.js, a user `node` with the id
 * 1000.
 */
async function makeBase(part: string): Promise<void> {
  const tree = join(part, 'tree');
  await run('debootstrap', ['--variant=minbase', 'bookworm', tree], OPTIONS);
  const node = join(ROOT, 'node_modules', 'node', 'bin', 'node');
  const npm = join(dirname((await run('sh', ['-c', 'readlink -f "$(command -v npm)"'])).stdout.trim()), '..');
  cpSync(node, join(tree, 'usr/local/bin/node'), { dereference: true });
  mkdirSync(join(tree, 'usr/local/lib/node_modules'), { recursive: true });
  cpSync(npm, join(tree, 'usr/local/lib/node_modules/npm'), { recursive: true, dereference: true });
  symlinkSync('../lib/node_modules/npm/bin/npm-cli.js', join(tree, 'usr/local/bin/npm'));
  const certificates = process.env['NODE_EXTRA_CA_CERTS'] ?? '';
  if (existsSync(certificates)) cpSync(certificates, join(tree, CERTIFICATES));
  else writeFileSync(join(tree, CERTIFICATES), '');
  await run('chroot', [
    tree,
    'useradd',
    '--uid',
    '1000',
    '--user-group',
    '--create-home',
    '--shell',
    '/bin/bash',
    'node',
  ]);
  await run('tar', ['-C', tree, '-cf', join(part, 'base.tar'), '.']);
  rmSync(tree, { recursive: true, force: true });
}
