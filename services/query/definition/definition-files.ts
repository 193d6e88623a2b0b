import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Settings } from '../../../common/config/settings.ts';
import { refuseMistakes, type Definition, type Mistake } from './definition.ts';
import { parseDefinition } from './parse-definition.ts';

/** The definitions that are served, by id and by name. */
export interface Definitions {
  readonly all: readonly Definition[];
  find(idOrName: string): Definition | undefined;
}

/** The folder of the endpoints that come with the service. */
export const BUILT_IN = join(import.meta.dirname, '..', 'endpoints');

export function foldersOf({ ENDPOINTS_DIR }: Pick<Settings, 'ENDPOINTS_DIR'>): string[] {
  return ENDPOINTS_DIR === undefined ? [BUILT_IN] : [BUILT_IN, ENDPOINTS_DIR];
}

/**
 * Reads every definition of the folders and ignores other files (`<name>.cases.yaml` has an endpoint's tests). Throws
 * one StartError (exit code 78) that lists every mistake with file and line, also a name or an id used twice.
 */
export function readDefinitions(folders: readonly string[]): Definitions {
  const mistakes: Mistake[] = [];
  const wrong = (file: string, message: string): void => void mistakes.push({ file, line: 1, message });
  const all: Definition[] = [];
  const attempt = <T>(path: string, read: (path: string) => T): T | undefined => {
    try {
      return read(path);
    } catch (error) {
      wrong(path, `cannot be read (${(error as NodeJS.ErrnoException).code})`);
      return undefined;
    }
  };
  const readText = (path: string): string => readFileSync(path, 'utf8');
  for (const stem of folders.flatMap((folder) => stemsOf(folder, attempt(folder, (path) => readdirSync(path)) ?? []))) {
    const [yamlFile, sqlFile] = [`${stem}.yaml`, `${stem}.sql`];
    const [yaml, sql] = [attempt(yamlFile, readText), attempt(sqlFile, readText)];
    if (yaml === undefined || sql === undefined) continue;
    const parsed = parseDefinition(yamlFile, yaml, sqlFile, sql);
    if ('mistakes' in parsed) {
      mistakes.push(...parsed.mistakes);
      continue;
    }
    const { definition } = parsed;
    for (const other of all) {
      if (other.id === definition.id || other.id === definition.name || other.name === definition.id)
        wrong(yamlFile, `has the id of ${other.yamlFile}`);
      if (other.name === definition.name) wrong(yamlFile, `has the name of ${other.yamlFile}`);
    }
    all.push(definition);
  }
  refuseMistakes(mistakes);
  const find = (idOrName: string) => all.find(({ id, name }) => name === idOrName || id === idOrName.toLowerCase());
  return { all, find };
}

/** Returns the paths of a folder's endpoints without `.sql` and `.yaml`, each once. */
function stemsOf(folder: string, files: readonly string[]): string[] {
  const ofEndpoints = files.filter((file) => /\.(sql|yaml)$/.test(file) && !file.endsWith('.cases.yaml')).toSorted();
  return [...new Set(ofEndpoints.map((file) => join(folder, file.replace(/\.(sql|yaml)$/, ''))))];
}
