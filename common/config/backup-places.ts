/** A place for backups: one of ClickHouse's engines for backups, and its arguments, one of which is the folder. */
interface BackupPlace {
  readonly engine: 'File' | 'Disk' | 'S3' | 'AzureBlobStorage';
  readonly args: readonly string[];
}

/** By the name that the operator chose. */
export type BackupPlaces = Readonly<Record<string, BackupPlace>>;

/** How many arguments each engine takes, and which of them is the folder. */
const engines = {
  Disk: { min: 1, max: 2, folder: 1 },
  S3: { min: 1, max: 3, folder: 0 },
  AzureBlobStorage: { min: 3, max: 5, folder: 2 },
} as const;
const LITERAL = String.raw`'(?:[^'\\]|\\.)*'`;
const PLACE = new RegExp(
  String.raw`\s*([A-Za-z0-9_-]{1,64})\s*=\s*(?:(Disk|S3|AzureBlobStorage)\(\s*(${LITERAL}(?:\s*,\s*${LITERAL})*)\s*\)|(/[^,]*))\s*(?:,|$)`,
  'y',
);

/**
 * Parses `name=/folder,name=Disk('disk'),name=S3('https://...','key','secret')`. Throws an Error for settings.ts, which
 * contains nothing of the value but names of places.
 */
export function backupPlaces(value: string): BackupPlaces {
  const places: Record<string, BackupPlace> = {};
  PLACE.lastIndex = 0;
  for (let at = 0; at < value.length; at = PLACE.lastIndex) {
    const [found, name = '', engine, literals, folder] = PLACE.exec(value) ?? [];
    if (found === undefined)
      throw new Error(
        `has a malformed place, number ${Object.keys(places).length + 1}; use a name of A-Z a-z 0-9 _ - and name=/folder, name=Disk('disk'), name=S3('https://...', 'key', 'secret') or name=AzureBlobStorage('...', 'container', 'folder'), separated by commas`,
      );
    if (Object.hasOwn(places, name)) throw new Error(`names ${name} twice`);
    if (engine === undefined) {
      places[name] = { engine: 'File', args: [folder!.trim().replace(/\/+$/, '') || '/'] };
      continue;
    }
    const { min, max } = engines[engine as keyof typeof engines];
    const args = [...literals!.matchAll(new RegExp(LITERAL, 'g'))].map(([literal]) =>
      literal.slice(1, -1).replaceAll(/\\(.)/g, '$1'),
    );
    if (args.length < min || args.length > max)
      throw new Error(`gives ${engine} of ${name} ${args.length} arguments; it takes ${min} to ${max}`);
    places[name] = { engine: engine as keyof typeof engines, args };
  }
  return places;
}

/** Returns the same place one folder deeper. */
export function folderIn({ engine, args }: BackupPlace, name: string): BackupPlace {
  const at = engine === 'File' ? 0 : engines[engine].folder;
  const folder = (args[at] ?? '').replace(/\/+$/, '');
  return { engine, args: args.toSpliced(at, 1, folder === '' && engine !== 'File' ? name : `${folder}/${name}`) };
}
