import { readFileSync, readdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import type { Settings } from '../../../common/config/settings.ts';
import { EXIT_CONFIG, StartError } from '../../../common/errors.ts';
import { refuseMistakes, type Definition, type Mistake } from './definition.ts';
import { parseDefinition } from './parse-definition.ts';

/** The definitions that are served, by id and by name. */
export interface Definitions {
  readonly all: readonly Definition[];
  find(idOrName: string): Definition | undefined;
}

/** The folder of the endpoints that come with the service. */
export const BUILT_IN = join(import.meta.dirname, '..', 'endpoints');

/** Returns the folders of definitions. */
export function foldersOf({ ENDPOINTS_DIR }: Pick<Settings, 'ENDPOINTS_DIR'>): string[] {
  return ENDPOINTS_DIR === undefined ? [BUILT_IN] : [BUILT_IN, ENDPOINTS_DIR];
}

/**
 * Reads every definition of the folders and ignores other files (`<name>.cases.yaml` has an endpoint's tests). Throws
 * one StartError (exit code 78) that lists every mistake with file and line, also a name or an id used twice.
 */
export function readDefinitions(folders: readonly string[]): Definitions {
  const mistakes: Mistake[] = [];
  const wrong = (file: string, message: string): undefined => void mistakes.push({ file, line: 1, message });
  const all: Definition[] = [];
  const readFile = (file: string): string | undefined => {
    try {
      return readFileSync(file, 'utf8');
    } catch (error) {
      return wrong(file, `cannot be read: ${(error as NodeJS.ErrnoException).code}`);
    }
  };
  for (const folder of folders) {
    let files: string[];
    try {
      files = readdirSync(folder).toSorted();
    } catch (error) {
      throw new StartError(`cannot read the folder of endpoints ${folder}: ${(error as NodeJS.ErrnoException).code}`, {
        cause: error,
        exitCode: EXIT_CONFIG,
      });
    }
    const stems = new Set(
      files
        .filter((f) => /\.(sql|yaml)$/.test(f) && !f.endsWith('.cases.yaml'))
        .map((f) => f.replace(/\.(sql|yaml)$/, '')),
    );
    for (const stem of stems) {
      const [yamlFile, sqlFile] = [join(folder, `${stem}.yaml`), join(folder, `${stem}.sql`)];
      const missing = [yamlFile, sqlFile].find((f) => !files.includes(basename(f)));
      if (missing !== undefined) {
        wrong(missing, 'is missing: an endpoint is a .sql and a .yaml file of one name');
        continue;
      }
      const [yaml, sql] = [readFile(yamlFile), readFile(sqlFile)];
      if (yaml === undefined || sql === undefined) continue;
      const parsed = parseDefinition(yamlFile, yaml, sqlFile, sql);
      if ('mistakes' in parsed) mistakes.push(...parsed.mistakes);
      else {
        const { definition } = parsed;
        for (const other of all) {
          if (other.id === definition.id || other.id === definition.name || other.name === definition.id)
            wrong(yamlFile, `has the id of ${other.yamlFile}`);
          if (other.name === definition.name) wrong(yamlFile, `has the name of ${other.yamlFile}`);
        }
        all.push(definition);
      }
    }
  }
  refuseMistakes(mistakes);
  const [byName, byId] = [new Map(all.map((d) => [d.name, d])), new Map(all.map((d) => [d.id, d]))];
  return { all, find: (idOrName) => byName.get(idOrName) ?? byId.get(idOrName.toLowerCase()) };
}
