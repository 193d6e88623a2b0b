import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import avro from 'avsc';
import { EXIT_CONFIG, StartError } from '../../../common/errors.ts';
import { sources, type SourceName } from '../../../common/sources.ts';
import { fingerprintOf } from './fingerprint.ts';
import { canonicalForm, spelledForAvsc, withFullNames } from './names.ts';

/** A schema that messages may have been written with. */
export type Schema = ReturnType<typeof parseSchema>;

export type KnownSchemas = ReturnType<typeof readKnownSchemas>;

/**
 * Parses a schema (JSON text). Throws Error where it is none.
 * Defaults are left out: a writer's have no meaning for its datums, and avsc refuses some that others write.
 */
export function parseSchema(text: string) {
  const json: unknown = JSON.parse(text);
  const schema = withFullNames(json);
  // wrapUnions: every union is allowed, also one of several numbers
  const type = avro.Type.forSchema(withFullNames(json, spelledForAvsc) as avro.Schema, { wrapUnions: true });
  return {
    /** its names are spelledForAvsc */
    type,
    /** in full; what it is if it has no name */
    name: (schema as { readonly name?: string }).name ?? type.typeName,
    /** computed when it is asked for: registries name schemas by ids */
    get fingerprint() {
      return fingerprintOf(canonicalForm(schema));
    },
  };
}

const FOLDER = fileURLToPath(new URL('../../../schemas/', import.meta.url));

/**
 * Reads `<source>.avsc` and `earlier/<source>/*.avsc` of schemas/, and every *.avsc at any depth of the operator's
 * folder.
 * Throws StartError where that folder cannot be read or holds something else under such a name.
 */
export function readKnownSchemas(operatorsFolder: string | undefined) {
  const known = new Map(schemaFiles(FOLDER).map((file) => [file, readSchema(FOLDER, file)]));
  const current = Object.fromEntries(sources.map(({ name }) => [name, known.get(`${name}.avsc`)!])) as Record<
    SourceName,
    Schema
  >;
  const operators = operatorsFolder === undefined ? [] : readOperators(operatorsFolder);
  // of equal fingerprints the present schema counts
  const all = [...known.values(), ...operators, ...Object.values(current)];
  return {
    /** the present schema of each source: the reader's */
    current,
    /** present, earlier and the operator's, of all sources */
    byFingerprint: new Map(all.map((schema) => [schema.fingerprint, schema])),
  };
}

function readOperators(folder: string): Schema[] {
  const orRefuse = <T>(what: string, read: () => T): T => {
    try {
      return read();
    } catch (error) {
      throw new StartError(`AVRO_SCHEMAS_DIR: ${what}: ${error instanceof Error ? error.message : String(error)}`, {
        cause: error,
        exitCode: EXIT_CONFIG,
      });
    }
  };
  const files = orRefuse(folder, () => schemaFiles(folder));
  return files.map((file) => orRefuse(file, () => readSchema(folder, file)));
}

function readSchema(folder: string, file: string): Schema {
  return parseSchema(readFileSync(join(folder, file), 'utf8'));
}

function schemaFiles(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.avsc'))
    .toSorted();
}
