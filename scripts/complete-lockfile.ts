import { readFileSync, writeFileSync } from 'node:fs';

/**
 * npm leaves the optional packages of other platforms out of package-lock.json when the registry it was made against
 * does not serve them, and `npm ci` then refuses the lockfile as out of step. This adds them, from their name and the
 * version that is asked for: enough for every platform to know which ones are not its own. To be run after every `npm
 * install`.
 */
interface Entry {
  version?: string;
  optional?: boolean;
  dev?: boolean;
  os?: string[];
  cpu?: string[];
  libc?: string[];
  optionalDependencies?: Record<string, string>;
}

const SYSTEMS = 'darwin linux win32 freebsd android openharmony sunos netbsd openbsd aix'.split(' ');
const PROCESSORS = 'arm64 x64 ia32 arm ppc64 riscv64 s390x loong64 mips64el'.split(' ');

/**
 * The entry of a platform's package by its name (`@scope/binding-linux-arm-gnueabihf`), or undefined where the name
 * says no platform.
 */
export function platformEntry(name: string, version: string): Entry | undefined {
  const words = name.split(/[/-]/);
  const os = words.find((w) => SYSTEMS.includes(w));
  const cpu = words.find((w) => PROCESSORS.includes(w));
  if (os === undefined || cpu === undefined) return undefined;
  const libc = words.some((w) => w.startsWith('musl'))
    ? ['musl']
    : os === 'linux' && words.some((w) => w.startsWith('gnu'))
      ? ['glibc']
      : undefined;
  return { version, cpu: [cpu], ...(libc === undefined ? {} : { libc }), optional: true, os: [os] };
}

/**
 * The lockfile with every optional package of another platform in it, in npm's order, and without addresses of a
 * registry.
 */
export function completeLockfile(text: string): string {
  const lock = JSON.parse(text) as { packages: Record<string, Entry> };
  for (const entry of Object.values(lock.packages)) {
    for (const [name, version] of Object.entries(entry.optionalDependencies ?? {})) {
      if (Object.keys(lock.packages).some((path) => path.endsWith(`node_modules/${name}`))) continue;
      const missing = platformEntry(name, version);
      if (missing === undefined) continue;
      lock.packages[`node_modules/${name}`] = entry.dev === true ? { ...missing, dev: true } : missing;
    }
  }
  lock.packages = Object.fromEntries(Object.entries(lock.packages).sort(([a], [b]) => (a < b ? -1 : 1)));
  return `${JSON.stringify(lock, (key, value: unknown) => (key === 'resolved' ? undefined : value), 2)}\n`;
}

if (import.meta.main) {
  const file = new URL('../package-lock.json', import.meta.url);
  writeFileSync(file, completeLockfile(readFileSync(file, 'utf8')));
}
