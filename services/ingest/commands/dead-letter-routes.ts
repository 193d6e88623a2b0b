import type { CommandContext } from '../../../common/command/command.ts';
import {
  ApiError,
  invalidParameters,
  repeatedParameters,
  readJson,
  type ParameterMistake,
} from '../../../common/http/errors.ts';
import { jsonAnswer, optionalParameter, sharedAnswers } from '../../../common/http/operation.ts';
import type { Operation, Route, RouteRequest, RouteResponse } from '../../../common/http/route.ts';
import {
  listDeadLetters,
  readDeadLetter,
  replayDeadLetter,
  replayLetters,
  type DeadLetterFilter,
  type LetterPlace,
} from '../dead-letters.ts';
import { reasons } from '../evaluate/record.ts';
import { replayOptionsOf } from './dead-letters.ts';

const LIST_LIMIT = 1_000;
const LIST_DEFAULT = 100;
const REPLAY_LIMIT = 100;
const REPLAY_DEFAULT = 25;
const BODY_LIMIT = 16 * 1024;
const PATH = '/api/dead-letters';
const PARAMETERS = ['topic', 'reason', 'open', 'limit', 'after'] as const;

/** Dead letters over HTTP, for admin keys: what `npm run dead-letters` does, a page at a time. */
export function deadLetterRoutes(context: CommandContext): Route[] {
  const { clickhouse } = context;
  const admin = { scope: 'admin', bodyLimit: BODY_LIMIT } as const;
  return [
    {
      ...admin,
      method: 'GET',
      path: PATH,
      documented: LIST,
      handle: async ({ query }) => {
        const mistakes = repeatedParameters(query, PARAMETERS);
        const filter = readFilter(Object.fromEntries(query), mistakes);
        const limit = readLimit(query.get('limit'), LIST_DEFAULT, LIST_LIMIT, mistakes);
        const after = readPlace(query.get('after'), mistakes);
        if (mistakes.length > 0) throw invalidParameters(mistakes);
        const found = await listDeadLetters(clickhouse, filter, limit + 1, after);
        const page = found.slice(0, limit);
        return {
          status: 200,
          json: {
            result: page.map((letter) => ({ ...letter, offset: Number(letter.offset) })),
            next: found.length > limit ? placeOf(page.at(-1)) : null,
          },
        };
      },
    },
    {
      ...admin,
      method: 'GET',
      path: `${PATH}/:topic/:partition/:offset`,
      documented: SHOW,
      handle: async ({ params, query }) => {
        const { topic = '', partition = '', offset = '' } = params;
        const incarnation = readIncarnation(query);
        if (!/^\d{1,9}$/.test(partition) || !/^\d{1,18}$/.test(offset))
          throw new ApiError('not_found', 'there is no dead letter at this place');
        const letter = await readDeadLetter(clickhouse, { topic, partition: Number(partition), offset, incarnation });
        if (letter === undefined) throw new ApiError('not_found', 'there is no dead letter at this place');
        const { record, reason, detail } = letter;
        return {
          status: 200,
          json: {
            result: {
              topic,
              incarnation: letter.incarnation,
              partition: Number(partition),
              offset: Number(offset),
              reason,
              detail,
              record_time: record.time < 0 ? null : new Date(record.time).toISOString(),
              key_base64: base64(record.key),
              headers: record.headers.map(([name, value]) => ({ name, value_base64: base64(value) })),
              value_base64: base64(record.value) ?? '',
            },
          },
        };
      },
    },
    {
      ...admin,
      method: 'POST',
      path: `${PATH}/replay`,
      documented: REPLAY,
      handle: (request) => replay(context, request),
    },
  ];
}

async function replay(
  context: CommandContext,
  { body, signal }: Pick<RouteRequest, 'body' | 'signal'>,
): Promise<RouteResponse> {
  const given = readObject(body);
  const mistakes: ParameterMistake[] = [];
  const filter = readFilter(given, mistakes);
  const limit = readLimit(given['limit'], REPLAY_DEFAULT, REPLAY_LIMIT, mistakes);
  const after = readPlace(given['after'], mistakes);
  if (filter.topic === undefined) mistakes.push({ parameter: 'topic', message: 'is required' });
  const { partition, offset, incarnation } = given;
  const isOne = partition !== undefined || offset !== undefined;
  if (isOne && !(isUInt32(partition) && isCount(offset)))
    mistakes.push({ parameter: 'offset', message: 'needs partition and offset, both whole numbers' });
  if (incarnation !== undefined && !(isOne && isUInt32(incarnation)))
    mistakes.push({ parameter: 'incarnation', message: 'must be a whole number, beside partition and offset' });
  if (mistakes.length > 0) throw invalidParameters(mistakes);
  const topic = filter.topic ?? '';
  const { clickhouse } = context;
  const options = replayOptionsOf(context);
  // once the caller has left, or stopped it, no further letter begins
  if (isOne) {
    const at = { topic, partition: Number(partition), offset: String(offset) };
    const letter = await readDeadLetter(clickhouse, {
      ...at,
      incarnation: isUInt32(incarnation) ? incarnation : undefined,
    });
    if (letter === undefined)
      throw new ApiError('not_found', `there is no dead letter at ${topic} ${at.partition} ${at.offset}`);
    const result = signal.aborted ? {} : { [await replayDeadLetter(options, letter)]: 1 };
    return { status: 200, json: { result, next: null } };
  }
  const found = await listDeadLetters(clickhouse, { ...filter, open: true }, limit + 1, after);
  const outcomes = {};
  const last = await replayLetters(options, found.slice(0, limit), outcomes, signal);
  return { status: 200, json: { result: outcomes, next: found.length > limit ? placeOf(last) : null } };
}

const base64 = (bytes: Uint8Array | null): string | null =>
  bytes === null ? null : Buffer.from(bytes).toString('base64');
const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && Number(value) >= 0;
/** ClickHouse would take 2 ** 32 for 0: another partition. */
const isUInt32 = (value: unknown): value is number => isCount(value) && value < 2 ** 32;

/** Throws ApiError. */
function readIncarnation(query: URLSearchParams): number | undefined {
  const mistakes = repeatedParameters(query, ['incarnation']);
  const given = query.get('incarnation') ?? '';
  if (given !== '' && !(/^\d{1,10}$/.test(given) && isUInt32(Number(given))))
    mistakes.push({ parameter: 'incarnation', message: 'must be a whole number' });
  if (mistakes.length > 0) throw invalidParameters(mistakes);
  return given === '' ? undefined : Number(given);
}

function readObject(body: Buffer): Readonly<Record<string, unknown>> {
  const given = readJson(body, 'the body must be a JSON object');
  if (typeof given === 'object' && given !== null && !Array.isArray(given)) return given as Record<string, unknown>;
  throw new ApiError('invalid_request', 'the body must be a JSON object');
}

function readFilter(given: Readonly<Record<string, unknown>>, mistakes: ParameterMistake[]): DeadLetterFilter {
  const topic = given['topic'] ?? '';
  if (typeof topic !== 'string' || topic.length > 249)
    mistakes.push({ parameter: 'topic', message: 'must be the name of a topic' });
  const reason = reasons.find((r) => r === given['reason']);
  if ((given['reason'] ?? '') !== '' && reason === undefined)
    mistakes.push({ parameter: 'reason', message: `must be one of ${reasons.join(', ')}` });
  const open = given['open'] ?? '';
  if (!['', 'true', 'false', true, false].includes(open as string | boolean))
    mistakes.push({ parameter: 'open', message: 'must be true or false' });
  return {
    topic: typeof topic === 'string' ? topic || undefined : undefined,
    reason,
    open: open === 'true' || open === true,
  };
}

function readLimit(given: unknown, standard: number, most: number, mistakes: ParameterMistake[]): number {
  if (given === undefined || given === null || given === '') return standard;
  const limit = typeof given === 'string' && /^\d+$/.test(given) ? Number(given) : given;
  if (typeof limit === 'number' && Number.isInteger(limit) && limit >= 1 && limit <= most) return limit;
  mistakes.push({ parameter: 'limit', message: `must be a whole number from 1 to ${most}` });
  return standard;
}

/** Where a page ended, as a text that callers only hand back. */
function placeOf(letter: LetterPlace | undefined): string | null {
  return letter === undefined ? null : [letter.topic, letter.incarnation, letter.partition, letter.offset].join(':');
}

function readPlace(given: unknown, mistakes: ParameterMistake[]): LetterPlace | undefined {
  if (given === undefined || given === null || given === '') return undefined;
  const [, topic = '', incarnation, partition, offset = ''] =
    (typeof given === 'string' && /^([\w.-]{1,249}):(\d{1,10}):(\d{1,10}):(\d{1,18})$/.exec(given)) || [];
  const [life, of] = [Number(incarnation), Number(partition)];
  if (isUInt32(life) && isUInt32(of)) return { topic, incarnation: life, partition: of, offset };
  mistakes.push({ parameter: 'after', message: 'must be `next` of the page before' });
  return undefined;
}

const text = (name: string, description: string, schema: object = {}): object =>
  optionalParameter(name, 'query', description, schema);
const refusals = sharedAnswers(400, 401, 403, 429, 503);
const json = (description: string, properties: object): object =>
  jsonAnswer(description, { type: 'object', required: Object.keys(properties), properties });
const NEXT = { type: ['string', 'null'], description: 'send it as `after` to go on; null = that was all' };
const place = {
  topic: { type: 'string' },
  incarnation: { type: 'integer' },
  partition: { type: 'integer' },
  offset: { type: 'integer' },
  reason: { enum: reasons },
  detail: { type: 'string' },
};

const LIST: Operation = {
  operationId: 'listDeadLetters',
  summary: 'Dead letters in the order of topic, partition and offset; needs a key with the scope admin',
  description: 'Messages that could not be stored, without their bytes.',
  parameters: [
    text('topic', 'only of this topic'),
    text('reason', 'only with this reason', { enum: reasons }),
    text('open', 'true: only those that were not replayed', { enum: ['true', 'false'] }),
    text('limit', `letters of a page, 1 to ${LIST_LIMIT}`, { default: String(LIST_DEFAULT) }),
    text('after', '`next` of the page before'),
  ],
  responses: {
    200: json('A page', {
      result: {
        type: 'array',
        items: { type: 'object', properties: { ...place, replayed_at: { type: ['string', 'null'] } } },
      },
      next: NEXT,
    }),
    ...refusals,
  },
};

const SHOW: Operation = {
  operationId: 'showDeadLetter',
  summary: 'One dead letter with its original bytes; needs a key with the scope admin',
  description:
    'Value, key and headers in base64. Of a topic that was recreated, without `incarnation` the letter of its last life that has one at this place.',
  parameters: [
    ...['topic', 'partition', 'offset'].map((name) => ({
      name,
      in: 'path',
      required: true,
      schema: { type: 'string' },
    })),
    text('incarnation', 'the life of the topic, as the list has it'),
  ],
  responses: {
    200: json('The letter', {
      result: {
        type: 'object',
        properties: {
          ...place,
          record_time: { type: ['string', 'null'] },
          key_base64: { type: ['string', 'null'] },
          headers: { type: 'array', items: { type: 'object' } },
          value_base64: { type: 'string' },
        },
      },
    }),
    ...refusals,
    ...sharedAnswers(404),
  },
};

const REPLAY: Operation = {
  operationId: 'replayDeadLetters',
  summary: "Evaluates dead letters again with today's rules and stores what passes; needs a key with the scope admin",
  description: `One letter by topic, partition and offset, or the open ones of a filter, ${REPLAY_DEFAULT} of them unless \`limit\` says otherwise: call again with \`after\` until \`next\` is null. A letter is stored once, however often it is replayed.`,
  requestBody: {
    required: true,
    content: {
      'application/json': {
        schema: {
          type: 'object',
          required: ['topic'],
          properties: {
            topic: { type: 'string' },
            partition: { type: 'integer' },
            offset: { type: 'integer' },
            incarnation: {
              type: 'integer',
              description: 'of the one letter; absent = the last life that has one there',
            },
            reason: { enum: reasons },
            limit: { type: 'integer', minimum: 1, maximum: REPLAY_LIMIT },
            after: { type: ['string', 'null'] },
          },
        },
      },
    },
  },
  responses: {
    200: json('How many letters had which outcome: `stored`, or the reason why it is still a dead letter', {
      result: { type: 'object', additionalProperties: { type: 'integer' } },
      next: NEXT,
    }),
    ...refusals,
  },
};
