import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createReadStream, createWriteStream, existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { fileURLToPath } from 'node:url';
import { createBrotliDecompress } from 'node:zlib';
import { chromium, type Browser } from 'playwright-core';

/** Root needs --no-sandbox; nothing else that a browser does by itself reaches out. */
const ARGUMENTS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--disable-dev-shm-usage',
  '--font-render-hinting=none',
  '--lang=en-US',
];
const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/**
 * A headless browser: that of CHROMIUM, else the one of the package @sparticuz/chromium, which `npm ci` has brought.
 * Throws where there is neither.
 */
export async function launchBrowser(): Promise<Browser> {
  const given = process.env['CHROMIUM'];
  if (given !== undefined && given !== '') return await chromium.launch({ executablePath: given, args: ARGUMENTS });
  const folder = await unpackedChromium();
  return await chromium.launch({
    executablePath: join(folder, 'chromium'),
    args: ARGUMENTS,
    // NSS and its like, which a bare machine lacks, and a font
    env: {
      ...process.env,
      LANG: 'C.UTF-8',
      LC_ALL: 'C.UTF-8',
      LD_LIBRARY_PATH: join(folder, 'lib'),
      FONTCONFIG_PATH: join(folder, 'fonts'),
    },
  });
}

/** Folder of the package's browser, unpacked once per version. */
async function unpackedChromium(): Promise<string> {
  if (process.platform !== 'linux' || process.arch !== 'x64') {
    throw new Error(
      `The package @sparticuz/chromium has no browser for ${process.platform} ${process.arch}: set CHROMIUM to the path of a Chromium or Chrome, for instance CHROMIUM=/usr/bin/chromium.`,
    );
  }
  const packed = join(dirname(createRequire(import.meta.url).resolve('@sparticuz/chromium')), '..');
  const { version } = JSON.parse(readFileSync(join(packed, 'package.json'), 'utf8')) as { version: string };
  const folder = join(ROOT, 'node_modules/.cache', `chromium-${version}`);
  if (existsSync(folder)) return folder;
  const part = `${folder}.${process.pid}.part`;
  mkdirSync(part, { recursive: true });
  await pipeline(
    createReadStream(join(packed, 'bin/chromium.br')),
    createBrotliDecompress(),
    createWriteStream(join(part, 'chromium'), { mode: 0o755 }),
  );
  for (const name of ['al2023', 'fonts']) await untar(join(packed, `bin/${name}.tar.br`), part);
  try {
    renameSync(part, folder);
  } catch (error) {
    // another process was faster
    rmSync(part, { recursive: true, force: true });
    if (!existsSync(folder)) throw error;
  }
  return folder;
}

async function untar(file: string, into: string): Promise<void> {
  const tar = spawn('tar', ['-x', '-C', into], { stdio: ['pipe', 'ignore', 'inherit'] });
  const ended = once(tar, 'close');
  // tar may end at the archive's end mark, before it has read the zeros behind it: its exit code says whether the
  // archive was whole
  const broken = await pipeline(createReadStream(file), createBrotliDecompress(), tar.stdin).then(
    () => undefined,
    (error: unknown) => error,
  );
  const [code] = (await ended) as [number | null];
  if (code !== 0) throw new Error(`tar ended with ${code} for ${file}`, { cause: broken });
}
