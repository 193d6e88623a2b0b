import { parseArgs, type ParseArgsOptionsConfig } from 'node:util';
import { UsageError } from '../errors.ts';
import { checkArguments } from './arguments.ts';
import type { Command, Form } from './command.ts';

type CommandLine<Args> = 'help' | { readonly args: Args; readonly url: string | undefined; readonly isJson: boolean };

const EVERYWHERE = {
  url: { type: 'string' },
  json: { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
} as const satisfies ParseArgsOptionsConfig;

export function helpOf(command: Pick<Command, 'name' | 'about' | 'forms' | 'needs' | 'interrupted'>): string {
  const asksService = command.needs === undefined;
  const forms = Object.entries(command.forms).map(([name, form]) => {
    const call = callOf(name, form, true);
    return `  npm run ${command.name}${call === '' ? '' : ` -- ${call}`}\n      ${form.help}\n`;
  });
  return `${forms.join('')}${command.about === '' ? '' : `\n${command.about}\n`}
${asksService ? '  --url URL    the running npm start; default http://HOST:PORT, https with HTTPS_CERT\n' : ''}  --json       one JSON document on stdout; npm adds lines of its own, unless called as npm run --silent ${command.name}
  --help       this text
${
  asksService
    ? `With CLICKHOUSE_URL set and no --url, the command works on ClickHouse directly. Otherwise it asks the running npm start, with the key in
API_KEY, else the one in DATA_DIR; if none runs, it opens the data folder. `
    : ''
}Exit codes: 0 success, 1 failure, 64 wrong arguments, 78 a wrong setting${command.interrupted === undefined ? '' : ', 130 ended by a signal'}.
`;
}

/** Reads the words behind the name of a command. Throws UsageError that names what is wrong. */
export function readCommandLine<Args>(
  command: Pick<Command<Args>, 'forms'>,
  words: readonly string[],
): CommandLine<Args> {
  const { values, positionals } = parse(words, command.forms);
  const { url, json, help, ...given } = values;
  if (help === true) return 'help';
  if (url !== undefined && !/^https?:$/.test(URL.parse(url)?.protocol ?? ''))
    throw new UsageError('--url takes an address such as http://127.0.0.1:4000');
  const { form, rest } = findForm(command.forms, positionals);
  const others = new Map(Object.entries(given));
  const options = Object.entries(form.options ?? {}).map(([name, { value, isRequired, isRepeatable }]) => {
    const found = others.get(name);
    others.delete(name);
    if (found === undefined && isRequired === true) throw new UsageError(`--${name} ${value} is missing`);
    return [
      name,
      (found as string | boolean | string[] | undefined) ??
        (isRepeatable === true ? [] : value === undefined ? false : undefined),
    ] as const;
  });
  if (form.hasAnyOption !== true && others.size > 0)
    throw new UsageError(`--${[...others.keys()][0]} cannot be used with ${positionals.join(' ')}`);
  const args = form.read(Object.fromEntries(options), rest, Object.fromEntries(others) as Record<string, string>);
  checkArguments(command, args);
  return { args, url, isJson: json === true };
}

function parse(words: readonly string[], forms: Readonly<Record<string, Form>>) {
  const options: ParseArgsOptionsConfig = {};
  // an option that no form declares has one value, where a form takes any
  if (Object.values(forms).some((form) => form.hasAnyOption === true))
    for (const word of words) {
      const name = /^--([A-Za-z_][A-Za-z0-9_]*)(=|$)/.exec(word)?.[1];
      if (name !== undefined) options[name] = { type: 'string' };
    }
  for (const [name, { value, isRepeatable = false }] of Object.values(forms).flatMap((f) =>
    Object.entries(f.options ?? {}),
  ))
    options[name] = { type: value === undefined ? 'boolean' : 'string', multiple: isRepeatable };
  try {
    const parsed = parseArgs({
      args: [...words],
      options: { ...options, ...EVERYWHERE },
      allowPositionals: true,
      tokens: true,
    });
    // of a repeated option Node keeps the last value only
    const seen = new Set<string>();
    for (const token of parsed.tokens) {
      if (token.kind !== 'option' || token.value === undefined || options[token.name]?.multiple === true) continue;
      if (seen.has(token.name)) throw new Error(`--${token.name} is given more than once`);
      seen.add(token.name);
    }
    return parsed;
  } catch (error) {
    throw new UsageError(withoutHint(error as Error));
  }
}

/** Returns the form of these words, and the words behind its action. */
function findForm<Args>(
  forms: Readonly<Record<string, Form<Args>>>,
  positionals: readonly string[],
): { form: Form<Args>; rest: readonly string[] } {
  for (const [name, form] of Object.entries(forms)) {
    const action = actionOf(name, form);
    const rest = action === '' ? positionals : positionals.slice(1);
    if ((action === '' || action === positionals[0]) && rest.length === (form.words ?? []).length)
      return { form, rest };
  }
  const calls = Object.entries(forms).map(([name, form]) => callOf(name, form, false));
  throw new UsageError(calls.join('') === '' ? 'Unexpected arguments' : `Expected one of: ${calls.join(', ')}`);
}

const actionOf = (name: string, form: Form): string => form.action ?? name;

/** Returns the words and options of a form as an operator types them, such as `resume TOPIC PARTITION`. */
function callOf(name: string, form: Form, isWhole: boolean): string {
  const options = Object.entries(form.options ?? {}).flatMap(([option, { value, isRequired, isRepeatable }]) => {
    if (isRequired !== true && !isWhole) return [];
    const text = `--${option}${value === undefined ? '' : ` ${value}`}${isRepeatable === true ? '...' : ''}`;
    return [isRequired === true ? text : `[${text}]`];
  });
  const any = form.hasAnyOption === true && isWhole ? ['[--parameter value...]'] : [];
  return [actionOf(name, form), ...(form.words ?? []), ...options, ...any].filter((word) => word !== '').join(' ');
}

/**
 * Returns what Node's parseArgs says, without its hint about words that begin with a dash: no command takes such words.
 */
export function withoutHint({ message }: Error): string {
  return message.replace(/\. (?:To specify a|This command does not take) positional .*/s, '');
}
