import type { ParameterMistake } from '../../../common/http/errors.ts';
import { RESERVED, type Definition, type Format, type Parameter } from './definition.ts';
import { matches, refusedPattern } from './pattern.ts';
import { clickhouseTimestamp, parseTimestamp } from './timestamp.ts';

/**
 * Canonical parameters in the declared order. The statement is bound with them, and the cache key is made of them.
 * An absent, empty or aliased value has become the value that it stands for. So has a value outside of the enum, if the
 * definition has `x-otherwise`.
 */
export type Params = Readonly<Record<string, string | null>>;

type ReadValue = { readonly value: string | null } | { readonly message: string };

const INT64 = { min: -(2n ** 63n), max: 2n ** 63n - 1n };

/** Converts a text that is not empty to the value the statement is bound with. */
const convertValue: Readonly<Record<Format, (value: string) => ReadValue>> = {
  string: (value) => ({ value }),
  pattern: (value) => {
    const message = refusedPattern(value);
    return message === undefined ? { value } : { message };
  },
  timestamp: (value) => {
    const micros = parseTimestamp(value);
    return micros === undefined
      ? { message: 'must be a timestamp such as 2026-03-01T09:00:00Z' }
      : { value: clickhouseTimestamp(micros) };
  },
  integer: (value) => {
    const n = /^-?\d{1,19}$/.test(value) ? BigInt(value) : undefined;
    return n === undefined || n < INT64.min || n > INT64.max
      ? { message: 'must be an integer of 64 bits' }
      : { value: String(n) };
  },
  number: (value) =>
    /^-?\d+(\.\d+)?([eE][+-]?\d+)?$/.test(value) && Number.isFinite(Number(value))
      ? { value: String(Number(value)) }
      : { message: 'must be a number' },
};

/** Returns the canonical value of a parameter from all values of a call, or what is wrong with them. */
export function readValue(p: Parameter, given: readonly string[]): ReadValue {
  if (given.length > 1) return { message: 'is given more than once' };
  const text = given[0] ?? '';
  if (text.includes('\0')) return { message: 'contains a NUL character' };
  if (Buffer.byteLength(text) > p.maxLength) return { message: `is longer than ${p.maxLength} bytes` };
  if (text === '' && p.default === undefined) {
    if (p.required) return { message: given.length === 0 ? 'is required' : 'must not be empty' };
    return { value: p.format === 'string' || p.format === 'pattern' ? '' : null };
  }
  let value = text === '' ? (p.default ?? '') : text;
  if (p.values !== undefined) {
    value = Object.hasOwn(p.aliases, value) ? (p.aliases[value] ?? value) : value;
    if (!p.values.includes(value)) {
      if (p.otherwise === undefined)
        return { message: `must be one of ${[...p.values, ...Object.keys(p.aliases)].join(', ')}` };
      value = p.otherwise;
    }
  }
  if (p.pattern !== undefined && !matches(p.pattern, value)) return { message: `must match ${p.pattern}` };
  const read = convertValue[p.format](value);
  if ('value' in read && p.format === 'integer') {
    const { minimum = -Infinity, maximum = Infinity } = p;
    if (Number(read.value) < minimum || Number(read.value) > maximum) return { message: `must be ${rangeOf(p)}` };
  }
  return read;
}

/** Returns the range of an integer for people, such as `from 1 to 100`. Undefined if it has none. */
export function rangeOf({ minimum, maximum }: Parameter): string | undefined {
  if (minimum === undefined && maximum === undefined) return undefined;
  return `${minimum === undefined ? 'up' : `from ${minimum}`}${maximum === undefined ? ' on' : ` to ${maximum}`}`;
}

/** Returns the canonical parameters of a call, or every mistake in it at once. Ignores undeclared parameters. */
export function readParams(
  definition: Definition,
  given: URLSearchParams,
): { params: Params } | { mistakes: ParameterMistake[] } {
  const params: Record<string, string | null> = {};
  const mistakes: ParameterMistake[] = [];
  for (const p of definition.parameters) {
    const read = readValue(p, given.getAll(p.name));
    if ('message' in read) mistakes.push({ parameter: p.name, message: read.message });
    else params[p.name] = read.value;
  }
  return mistakes.length > 0 ? { mistakes } : { params };
}

const IGNORED_CHARACTERS = 1000;

/**
 * Returns the names of undeclared parameters for the caller, percent-encoded and separated by commas, as many as fit.
 */
export function ignoredParameters(definition: Definition, given: URLSearchParams): string {
  const known = new Set<string>([RESERVED.apiKey, ...definition.parameters.map((p) => p.name)]);
  const names: string[] = [];
  let characters = 0;
  for (const name of new Set(given.keys())) {
    if (known.has(name)) continue;
    const encoded = encodeURIComponent(name.toWellFormed());
    if (characters + encoded.length + 2 > IGNORED_CHARACTERS) continue;
    characters += encoded.length + 2;
    names.push(encoded);
  }
  return names.join(', ');
}
