import { systemClock } from '../../../common/clock.ts';
import { form, type Command } from '../../../common/command/command.ts';
import { UsageError } from '../../../common/errors.ts';
import { checkDefinitions } from '../definition/check.ts';
import { describe } from '../definition/definition.ts';
import { foldersOf, readDefinitions } from '../definition/definition-files.ts';
import { ApiError, wordsOf } from '../../../common/http/errors.ts';
import { eachElement, members } from '../../../common/json-text.ts';
import { readParams } from '../definition/params.ts';
import { limitsOf, runQuery } from '../answer/query.ts';

type Args =
  | { readonly action: 'check' }
  | { readonly action: 'run'; readonly endpoint: string; readonly parameters: Readonly<Record<string, string>> };

type Result =
  | { readonly checked: readonly string[]; readonly mistakes: string }
  /** rows as JSON text, so no digit changes on the way */
  | { readonly rows: readonly string[]; readonly truncated: boolean };

export const endpointsCommand: Command<Args, Result> = {
  name: 'endpoints',
  about: 'For instance: npm run endpoints -- run logs.all --project abcdefghijklmnopqrst --project_tier PRO',
  forms: {
    check: form({
      help: 'checks every definition, also of ENDPOINTS_DIR, against ClickHouse',
      read: (): Args => ({ action: 'check' }),
    }),
    run: form({
      help: 'shows the rows of one call, not from the cache',
      words: ['NAME'],
      hasAnyOption: true,
      schema: {
        properties: {
          endpoint: { type: 'string', maxLength: 200 },
          parameters: { type: 'object', additionalProperties: { type: 'string' }, maxProperties: 100 },
        },
        required: ['endpoint', 'parameters'],
      },
      read: (_, [endpoint], parameters): Args => ({ action: 'run', endpoint, parameters }),
    }),
  },

  async run({ clickhouse, settings }, args) {
    const definitions = readDefinitions(foldersOf(settings));
    if (args.action === 'check') {
      // 60 UNKNOWN_TABLE if there is no schema yet, which is no mistake of a definition
      await clickhouse.read({ sql: 'SELECT 1 FROM batches LIMIT 0', format: 'Null' });
      const mistakes = await checkDefinitions(clickhouse, definitions.all);
      return { checked: definitions.all.map((d) => d.name), mistakes: describe(mistakes) };
    }
    const definition = definitions.find(args.endpoint);
    if (definition === undefined) throw new UsageError(`there is no endpoint ${args.endpoint}`);
    const read = readParams(definition, new URLSearchParams(args.parameters));
    if ('mistakes' in read) throw new UsageError(wordsOf(read.mistakes));
    try {
      const { body, truncated } = await runQuery(clickhouse, {
        definition,
        params: read.params,
        now: systemClock(),
        limits: limitsOf(settings),
        signal: new AbortController().signal,
        reserve: () => Promise.resolve(() => {}),
      });
      return { rows: [...eachElement(members(body.toString(), ['result']).get('result') ?? '[]')], truncated };
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.mistakes.length > 0) throw new UsageError(wordsOf(error.mistakes));
      // the operator is asking, so ClickHouse's message is shown
      throw error.cause ?? error;
    }
  },

  print(result) {
    if ('checked' in result)
      return result.mistakes === ''
        ? `${result.checked.length} endpoints are fine: ${result.checked.join(', ')}\n`
        : `${result.mistakes}\n`;
    return `${result.rows.map((row) => `${row}\n`).join('')}${result.truncated ? '(cut at max rows)\n' : ''}`;
  },
  json: (result) =>
    'rows' in result ? `{"result":[${result.rows.join(',')}],"truncated":${result.truncated}}` : result,
  exitCode: (result) => ('mistakes' in result && result.mistakes !== '' ? 1 : 0),
};
