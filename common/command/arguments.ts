import { Ajv, type ErrorObject, type ValidateFunction } from 'ajv';
import { UsageError } from '../errors.ts';
import type { Command } from './command.ts';

const ajv = new Ajv({ allErrors: true, strict: true, strictRequired: false, discriminator: true });
const validators = new WeakMap<object, ValidateFunction>();
const MOST_MISTAKES = 5;

export const TOPIC = { type: 'string', pattern: '^[A-Za-z0-9._-]{1,249}$' } as const;
export const PARTITION = { type: 'integer', minimum: 0, maximum: 2 ** 31 - 1 } as const;

/** Returns the number that a word of a command line writes, or NaN, which no schema accepts. */
export function wholeNumber(word: string): number {
  return /^\d{1,15}$/.test(word) ? Number(word) : Number.NaN;
}

/** Returns the schema of a command's arguments: a choice of its forms, named by the member `action`. */
export function schemaOf({ forms }: Pick<Command, 'forms'>): object {
  if ('' in forms) return { type: 'object', properties: {}, additionalProperties: false };
  return {
    type: 'object',
    discriminator: { propertyName: 'action' },
    required: ['action'],
    oneOf: Object.entries(forms).map(([name, { schema }]) => ({
      properties: { action: { const: name }, ...schema?.properties },
      required: ['action', ...(schema?.required ?? [])],
      additionalProperties: false,
    })),
  };
}

/** Throws UsageError that names the arguments that are wrong, never their values. */
export function checkArguments(command: Pick<Command, 'forms'>, given: unknown): void {
  let validate = validators.get(command);
  if (validate === undefined) validators.set(command, (validate = ajv.compile(schemaOf(command))));
  if (validate(given)) return;
  throw new UsageError(
    `the arguments are wrong: ${(validate.errors ?? []).slice(0, MOST_MISTAKES).map(sentence).join('; ')}`,
  );
}

const TYPES: Readonly<Record<string, string>> = {
  object: 'an object',
  array: 'a list',
  string: 'a text',
  integer: 'a whole number',
  boolean: 'true or false',
};

/** Returns ajv's finding in plain words. */
function sentence({ instancePath, keyword, message = 'is wrong', params }: ErrorObject): string {
  const { tag, allowedValues, type, missingProperty, additionalProperty } = params as Readonly<
    Record<string, string>
  > & {
    readonly allowedValues?: readonly unknown[];
  };
  const path = [...instancePath.split('/').slice(1), missingProperty ?? additionalProperty ?? []].flat();
  const at = path.length === 0 ? 'they' : path.join('.');
  if (keyword === 'discriminator') return `${tag} has an unknown value`;
  if (keyword === 'enum') return `${at} must be one of ${allowedValues?.join(', ')}`;
  if (keyword === 'type') return `${at} must be ${TYPES[type!] ?? type}`;
  if (keyword === 'pattern') return `${at} has a form that is not allowed`;
  if (keyword === 'required') return `${at} is missing`;
  if (keyword === 'additionalProperties') return `${at} is not known`;
  return `${at} ${message.replace('NOT have more than', 'have at most').replace('>=', 'at least').replace('<=', 'at most')}`;
}
