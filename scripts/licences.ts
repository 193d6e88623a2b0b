import { existsSync, readFileSync, writeFileSync } from 'node:fs';

/**
 * docs/licences.md: the licence of every package of the lockfile, what is shipped apart from what only tests and tools
 * need. `npm run licences` makes it anew.
 */
interface Entry {
  readonly version?: string;
  readonly license?: string;
  readonly dev?: boolean;
  readonly devOptional?: boolean;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

interface Licence {
  readonly name: string;
  readonly version: string;
  /** SPDX expression */
  readonly licence: string;
  /** needed by a service, not only by tests and tools */
  readonly isShipped: boolean;
}

type Copyleft = 'none' | 'of its own files' | 'of the whole work';

const PERMISSIVE = new Set([
  'MIT',
  'ISC',
  'Apache-2.0',
  'BSD-2-Clause',
  'BSD-3-Clause',
  '0BSD',
  'BlueOak-1.0.0',
  'Zlib',
  'Unlicense',
  'CC0-1.0',
  'Python-2.0',
]);

/** What a licence asks of works that contain the package. Throws for one that nobody has looked at yet. */
export function copyleftOf(licence: string): Copyleft {
  const names = licence.replace(/[()]/g, '').split(/ AND /);
  if (names.every((n) => PERMISSIVE.has(n))) return 'none';
  if (names.every((n) => PERMISSIVE.has(n) || n === 'MPL-2.0')) return 'of its own files';
  if (names.some((n) => /^(A?GPL|LGPL|SSPL|EUPL|OSL)/.test(n))) return 'of the whole work';
  throw new Error(`the licence ${licence} is not known here: read it, and add it to scripts/licences.ts`);
}

/**
 * Licences of all packages, by name. A package of another platform has that of the package which asks for it; one that
 * names none in the lockfile is read where it is installed.
 */
export function licencesOf(
  lockfile: string,
  installed: (path: string) => string | undefined = readInstalled,
): Licence[] {
  const { packages } = JSON.parse(lockfile) as { packages: Readonly<Record<string, Entry>> };
  const askers = new Map<string, string>();
  for (const entry of Object.values(packages)) {
    if (entry.license !== undefined)
      for (const name of Object.keys(entry.optionalDependencies ?? {})) askers.set(name, entry.license);
  }
  const found = Object.entries(packages)
    .filter(([path]) => path !== '')
    .map(([path, entry]): Licence => {
      const name = path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length);
      const licence = entry.license ?? askers.get(name) ?? installed(path);
      if (licence === undefined) throw new Error(`${name} names no licence; look at it where it is installed (npm ci)`);
      return {
        name,
        version: entry.version ?? '',
        licence,
        isShipped: entry.dev !== true && entry.devOptional !== true,
      };
    });
  // the same version may stand in several folders
  return [...new Map(found.map((l) => [`${l.name} ${l.version} ${l.isShipped}`, l])).values()].sort((a, b) =>
    a.name === b.name ? (a.version < b.version ? -1 : 1) : a.name < b.name ? -1 : 1,
  );
}

/** The older form of package.json has a list. */
function readInstalled(path: string): string | undefined {
  const file = new URL(`../${path}/package.json`, import.meta.url);
  if (!existsSync(file)) return undefined;
  const { license, licenses } = JSON.parse(readFileSync(file, 'utf8')) as {
    license?: string;
    licenses?: readonly { type: string }[];
  };
  return license ?? licenses?.map((l) => l.type).join(' AND ');
}

export function licencesMarkdown(licences: readonly Licence[]): string {
  const table = (of: readonly Licence[]): string => {
    const byLicence = [...Map.groupBy(of, (l) => l.licence)].sort(([a], [b]) => (a < b ? -1 : 1));
    return [
      '| licence | copyleft | packages |',
      '|---|---|---|',
      ...byLicence.map(
        ([licence, packages]) =>
          `| ${licence} | ${copyleftOf(licence)} | ${packages.map((p) => `${p.name} ${p.version}`).join(', ')} |`,
      ),
    ].join('\n');
  };
  return `# Licences of the packages in package-lock.json

Made by \`npm run licences\`; a test compares. The names are SPDX expressions, as the packages themselves give them. "Copyleft" says what a licence asks of works
that contain the package: nothing, that changes of its own files stay open, or that the whole work does.

Not in the lockfile: Node.js itself, which the package \`node\` fetches when it is installed (MIT, with the licences of its parts in its LICENSE), and the jars of
Apache Kafka that \`npm start\` fetches for a local broker where there is no Docker (Apache-2.0, slf4j: MIT).

## Shipped: what a service needs
${table(licences.filter((l) => l.isShipped))}

## For tests and tools only
${table(licences.filter((l) => !l.isShipped))}
`;
}

export const readLockfile = (): string => readFileSync(new URL('../package-lock.json', import.meta.url), 'utf8');
export const LICENCES = new URL('../docs/licences.md', import.meta.url);

if (import.meta.main) writeFileSync(LICENCES, licencesMarkdown(licencesOf(readLockfile())));
