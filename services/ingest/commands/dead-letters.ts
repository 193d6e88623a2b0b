import { PARTITION, TOPIC, wholeNumber } from '../../../common/command/arguments.ts';
import { form, type Command, type CommandContext } from '../../../common/command/command.ts';
import { systemClock } from '../../../common/clock.ts';
import { StartError } from '../../../common/errors.ts';
import {
  listDeadLetters,
  placeOf,
  readDeadLetter,
  replayAll,
  replayDeadLetter,
  type Coordinates,
  type DeadLetterFilter,
  type LetterPlace,
  type ReplayOutcome,
} from '../operate/dead-letters.ts';
import { createDecoders } from '../service.ts';
import { reasons, type Reason } from '../evaluate/record.ts';

/** Letters of a filter, behind `after` if it is given, which is `next` of the result before. */
interface Selection {
  readonly filter: DeadLetterFilter;
  readonly after?: LetterPlace;
}

type Args =
  | ({ readonly action: 'list'; readonly limit: number } & Selection)
  | { readonly action: 'show' | 'replay'; readonly at: Coordinates }
  | ({ readonly action: 'replay_all'; readonly limit?: number } & Selection);

interface Replayed {
  readonly replayed: { readonly [outcome in ReplayOutcome]?: number };
  readonly next: LetterPlace | null;
}

type Result = Awaited<ReturnType<typeof list>> | Awaited<ReturnType<typeof show>> | Replayed;

const LIMIT = 1_000;
const MOST_LETTERS = { type: 'integer', minimum: 1, maximum: 1_000_000 };
/** It refuses a misspelt reason, which would find nothing, as if all were well. */
const FILTER = {
  type: 'object',
  properties: { topic: TOPIC, reason: { type: 'string', enum: reasons }, open: { type: 'boolean' } },
  additionalProperties: false,
};
const AT = {
  type: 'object',
  properties: {
    topic: TOPIC,
    incarnation: { type: 'integer', minimum: 0, maximum: 2 ** 32 - 1 },
    partition: PARTITION,
    offset: { type: 'string', pattern: '^(0|[1-9][0-9]{0,17})$' },
  },
  required: ['topic', 'partition', 'offset'],
  additionalProperties: false,
};
const AFTER = { ...AT, required: Object.keys(AT.properties) };

const COORDINATES = ['TOPIC', 'PARTITION', 'OFFSET'] as const;

async function list({ clickhouse }: CommandContext, { filter, limit, after }: Selection & { readonly limit: number }) {
  const found = await listDeadLetters(clickhouse, filter, limit + 1, after);
  const page = found.slice(0, limit);
  return {
    dead_letters: page.map((letter) => ({ ...letter, offset: Number(letter.offset) })),
    next: found.length > limit ? placeOf(page.at(-1)!) : null,
  };
}

async function letterAt({ clickhouse }: CommandContext, at: Coordinates) {
  const letter = await readDeadLetter(clickhouse, at);
  if (letter === undefined) throw new StartError(`there is no dead letter at ${at.topic} ${at.partition} ${at.offset}`);
  return letter;
}

async function show(context: CommandContext, at: Coordinates) {
  const { topic, incarnation, partition, reason, detail, record } = await letterAt(context, at);
  return {
    topic,
    incarnation,
    partition,
    offset: record.offset,
    reason,
    detail,
    record_time: record.time < 0 || record.time > LATEST ? null : new Date(record.time).toISOString(),
    key_base64: base64(record.key),
    headers: record.headers.map(([name, value]) => ({ name, value_base64: base64(value) })),
    value_base64: base64(record.value) ?? '',
  };
}

/** The last time that a Date can hold, unix milliseconds; Kafka's records may have later ones. */
const LATEST = 8.64e15;

const base64 = (bytes: Buffer | null): string | null => bytes?.toString('base64') ?? null;

function readCoordinates([topic, partition, offset]: readonly [string, string, string]): Coordinates {
  return { topic, partition: wholeNumber(partition), offset };
}

export const deadLettersCommand: Command<Args, Result> = {
  name: 'dead-letters',
  about: `A replay evaluates a letter again with the rules and settings of the process that runs it: npm start, or this command. It writes the row with
its original coordinates, once. The exit code is 1 if one was not stored. Outcome "unfinished": its batch is not finished yet; try again.`,
  forms: {
    list: form({
      help: 'lists dead letters; --open: only those that were not replayed',
      options: { topic: { value: 'TOPIC' }, reason: { value: 'REASON' }, open: {}, limit: { value: 'N' } },
      schema: {
        properties: { filter: FILTER, limit: MOST_LETTERS, after: AFTER },
        required: ['filter', 'limit'],
      },
      read: ({ topic, reason, open, limit = String(LIMIT) }): Args => ({
        action: 'list',
        filter: { topic, reason: reason as Reason | undefined, ...(open && { open }) },
        limit: wholeNumber(limit),
      }),
    }),
    show: form({
      help: 'writes the original bytes to stdout',
      words: COORDINATES,
      schema: { properties: { at: AT }, required: ['at'] },
      read: (_, words): Args => ({ action: 'show', at: readCoordinates(words) }),
    }),
    replay: form({
      help: 'replays one letter',
      words: COORDINATES,
      schema: { properties: { at: AT }, required: ['at'] },
      read: (_, words): Args => ({ action: 'replay', at: readCoordinates(words) }),
    }),
    replay_all: form({
      help: 'replays all letters of a topic, 25 a second; Ctrl-C ends it, and it may be repeated',
      action: 'replay',
      options: { topic: { value: 'TOPIC', isRequired: true }, reason: { value: 'REASON' } },
      schema: {
        properties: { filter: { ...FILTER, required: ['topic'] }, limit: MOST_LETTERS, after: AFTER },
        required: ['filter'],
      },
      read: ({ topic, reason }): Args => ({
        action: 'replay_all',
        filter: { topic, reason: reason as Reason | undefined },
      }),
    }),
  },

  async run(context, args) {
    if (args.action === 'list') return await list(context, args);
    if (args.action === 'show') return await show(context, args.at);
    const { clickhouse, settings } = context;
    const replaying = {
      clickhouse,
      decoders: createDecoders(settings),
      retentionDays: settings.RAW_RETENTION_DAYS,
      maxEventBytes: settings.MAX_EVENT_BYTES,
      rawAvroTopics: settings.KAFKA_RAW_AVRO_TOPICS,
      clock: systemClock,
    };
    if (args.action === 'replay_all') return await replayAll(replaying, args.filter, args, context.signal);
    const outcome = await replayDeadLetter(replaying, await letterAt(context, args.at));
    return { replayed: { [outcome]: 1 }, next: null };
  },

  print(result) {
    if ('value_base64' in result) return Buffer.from(result.value_base64, 'base64');
    if ('replayed' in result)
      return `${
        Object.entries(result.replayed)
          .map(([outcome, count]) => `${outcome} ${count}`)
          .join('\n') || 'nothing to replay'
      }\n`;
    if (result.dead_letters.length === 0) return 'no dead letters\n';
    return `${result.dead_letters.map((d) => `${d.topic} ${d.partition} ${d.offset}  ${d.reason}${d.detail === '' ? '' : ` (${d.detail})`}${d.replayed_at === null ? '' : `  replayed ${d.replayed_at}`}`).join('\n')}\n${result.next === null ? '' : 'there are more: --limit N\n'}`;
  },

  json(result) {
    if (!('next' in result)) return result;
    const { next, ...said } = result;
    return { ...said, ...(next !== null && { more: true }) };
  },
  exitCode: (result) =>
    'replayed' in result && Object.keys(result.replayed).some((outcome) => outcome !== 'stored') ? 1 : 0,
};
