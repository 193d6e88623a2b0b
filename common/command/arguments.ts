import { Ajv, type ErrorObject, type ValidateFunction } from 'ajv';
import { UsageError } from './usage-error.ts';

/** JSON Schema, draft 7: an object, or a choice of objects by one member. */
export type ArgumentsSchema = Readonly<Record<string, unknown>>;

const ajv = new Ajv({ allErrors: true, strict: true, strictRequired: false, discriminator: true });
const validators = new WeakMap<ArgumentsSchema, ValidateFunction>();
const MOST_MISTAKES = 5;

export const TOPIC = { type: 'string', pattern: '^[A-Za-z0-9._-]{1,249}$' } as const;
export const PARTITION = { type: 'integer', minimum: 0, maximum: 2 ** 31 - 1 } as const;

/** The schema of a command without arguments. */
export const NO_ARGUMENTS: ArgumentsSchema = { type: 'object', properties: {}, additionalProperties: false };

/** Returns the schema of a command with several actions, named by the member `by`. */
export function oneOfActions(
  by: string,
  actions: Readonly<
    Record<string, { readonly properties?: Readonly<Record<string, unknown>>; readonly required?: readonly string[] }>
  >,
): ArgumentsSchema {
  return {
    type: 'object',
    discriminator: { propertyName: by },
    required: [by],
    oneOf: Object.entries(actions).map(([name, { properties = {}, required = [] }]) => ({
      properties: { [by]: { const: name }, ...properties },
      required: [by, ...required],
      additionalProperties: false,
    })),
  };
}

/** Throws UsageError that names the members that do not fit the schema, never their values. */
export function checkArguments(schema: ArgumentsSchema, given: unknown): void {
  let validate = validators.get(schema);
  if (validate === undefined) validators.set(schema, (validate = ajv.compile(schema)));
  if (validate(given)) return;
  throw new UsageError(
    `the arguments are wrong: ${(validate.errors ?? []).slice(0, MOST_MISTAKES).map(sentence).join('; ')}`,
  );
}

function sentence({ instancePath, keyword, message = 'is wrong', params }: ErrorObject): string {
  const { tag, allowedValues } = params as { tag?: string; allowedValues?: readonly unknown[] };
  const at = instancePath === '' ? 'the object' : instancePath.slice(1).replaceAll('/', '.');
  if (keyword === 'discriminator') return `${tag} has an unknown value`;
  if (keyword === 'enum') return `${at} must be one of ${allowedValues?.join(', ')}`;
  return `${at} ${message}`;
}
