/** The part of /openapi.json that the page reads. */
export interface Specification {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
}

interface Operation {
  readonly description?: string;
  readonly parameters?: readonly {
    readonly name: string;
    readonly in: string;
    readonly required?: boolean;
    readonly description?: string;
    readonly schema?: Schema;
  }[];
}

interface Schema {
  readonly enum?: readonly string[];
  readonly examples?: readonly string[];
  readonly default?: string;
  readonly format?: string;
}

export interface Parameter {
  readonly name: string;
  readonly isRequired: boolean;
  readonly description: string;
  /** suggested values; undefined for any text */
  readonly choices: readonly string[] | undefined;
  readonly example: string;
  readonly standard: string;
  readonly isTimestamp: boolean;
  /** true for the caller's own SELECT */
  readonly isStatement: boolean;
}

export interface Endpoint {
  readonly name: string;
  readonly path: string;
  readonly description: string;
  readonly parameters: readonly Parameter[];
}

const PREFIX = '/api/endpoints/';

/** Returns every endpoint that the service offers, operators' routes included, by name. */
export function endpointsOf({ paths }: Specification): Endpoint[] {
  return Object.entries(paths)
    .flatMap(([path, { get }]) => (path.startsWith(PREFIX) && get !== undefined ? [endpointOf(path, get)] : []))
    .sort((a, b) => (a.name < b.name ? -1 : 1));
}

function endpointOf(path: string, { description = '', parameters = [] }: Operation): Endpoint {
  return {
    name: path.slice(PREFIX.length),
    path,
    description,
    parameters: parameters
      .filter((p) => p.in === 'query')
      .map(({ name, required = false, description: text = '', schema = {} }) => {
        const choices = schema.enum ?? ((schema.examples?.length ?? 0) > 1 ? schema.examples : undefined);
        return {
          name,
          isRequired: required,
          description: text,
          choices,
          example: schema.examples?.[0] ?? '',
          standard: schema.default ?? '',
          isTimestamp: schema.format === 'timestamp',
          isStatement: name === 'sql',
        };
      }),
  };
}
