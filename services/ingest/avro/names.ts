/**
 * Schemas (JSON) whose names are resolved by https://avro.apache.org/docs/1.12.0/specification/#names, as Java reads
 * them. avsc refuses two things that Java and Confluent's registry accept:
 * - Only what stands behind the last dot must be a name: com.my-company.logs, com.acme.Outer$ and 2024.logs are
 *   namespaces.
 * - A bare name that the namespace around it does not have is one without a namespace. Java writes such schemas itself.
 */

const PRIMITIVES: readonly unknown[] = ['null', 'boolean', 'int', 'long', 'float', 'double', 'bytes', 'string'];

/**
 * The most characters that full names may have together. Each reference has its own, so a schema of 267 KB with a long
 * namespace filled 600 MB.
 */
const MAX_NAMES = 1024 * 1024;

interface Attributes {
  readonly [attribute: string]: unknown;
  readonly type?: unknown;
}

/**
 * Returns what a schema's datums depend on, and aliases: each name in full, as `spelled` writes it, and each primitive
 * type and reference as a text. The attributes have the order of the Parsing Canonical Form. avsc judges the rest.
 */
export function withFullNames(schema: unknown, spelled = (fullName: string): string => fullName): unknown {
  const defined = new Set<string>();
  let left = MAX_NAMES;
  return resolved(schema, '');

  function spell(fullName: string): string {
    left -= fullName.length;
    if (left < 0) throw new Error(`its names in full have more than ${MAX_NAMES} characters`);
    return spelled(fullName);
  }

  function resolved(type: unknown, namespace: string): unknown {
    if (typeof type === 'string') return PRIMITIVES.includes(type) ? type : spell(referenced(type, namespace));
    if (Array.isArray(type)) return type.map((branch) => resolved(branch, namespace));
    if (typeof type !== 'object' || type === null) throw new Error(`${JSON.stringify(type)} is no type`);
    const of = type as Attributes;
    switch (of.type) {
      case 'array':
        return { type: 'array', items: resolved(of['items'], namespace) };
      case 'map':
        return { type: 'map', values: resolved(of['values'], namespace) };
      case 'record':
      case 'error':
      case 'enum':
      case 'fixed':
        return named(of, namespace);
      default:
        return resolved(of.type, namespace);
    }
  }

  function referenced(name: string, namespace: string): string {
    const full = fullNameOf(name, namespace);
    if (defined.has(full)) return full;
    if (defined.has(name)) return name;
    throw new Error(`undefined type name: ${full}`);
  }

  /** A type without a name, as avsc allows it, stays without. */
  function named({ type, name, namespace, aliases, fields, symbols, size }: Attributes, around: string): unknown {
    if (!['string', 'undefined'].includes(typeof name)) throw new Error(`invalid name: ${JSON.stringify(name)}`);
    const names = aliases ?? undefined;
    if (!(names === undefined || Array.isArray(names))) throw new Error('aliases are no list');
    const given = typeof namespace === 'string' ? namespace : around;
    const full = typeof name === 'string' ? fullNameOf(name, given) : undefined;
    const own = full === undefined ? given : namespaceOf(full);
    if (full !== undefined) defined.add(full);
    const naming = {
      name: full === undefined ? undefined : spell(full),
      // as Java writes it
      type: type === 'error' ? 'record' : type,
      aliases: names?.map((alias) => spell(fullNameOf(String(alias), own))),
    };
    if (type === 'enum') return { ...naming, symbols };
    if (type === 'fixed') return { ...naming, size };
    if (!Array.isArray(fields)) throw new Error(`a ${String(type)} has no fields`);
    return {
      ...naming,
      fields: fields.map((field: Attributes) => ({
        name: field['name'],
        type: resolved(field.type, own),
        aliases: field['aliases'],
      })),
    };
  }
}

/** Returns the Parsing Canonical Form of a schema with full names. */
export function canonicalForm(schema: unknown): string {
  return JSON.stringify(schema, (key, value: unknown) => (key === 'aliases' ? undefined : value));
}

/**
 * Returns a full name as avsc takes it wherever it stands: absolute, with a valid namespace. Different ones stay
 * different. A namespace that avsc accepts stays as it is, unless it has what begins an escape.
 */
export function spelledForAvsc(fullName: string): string {
  const namespace = namespaceOf(fullName);
  const escaped = (part: string): string =>
    part.replaceAll(/\W|^\d|_(?=x)/gu, (character) => `_x${character.codePointAt(0)!.toString(16)}_`) || '_x_';
  return `${namespace === '' ? '' : namespace.split('.').map(escaped).join('.')}.${unqualified(fullName)}`;
}

/** Returns a name without its namespace. */
export function unqualified(name: string): string {
  return name.slice(name.lastIndexOf('.') + 1);
}

function namespaceOf(name: string): string {
  return name.slice(0, Math.max(0, name.lastIndexOf('.')));
}

function fullNameOf(name: string, namespace: string): string {
  const own = name.includes('.') ? namespaceOf(name) : namespace;
  return own === '' ? unqualified(name) : `${own}.${unqualified(name)}`;
}
