import { PARTITION, TOPIC, wholeNumber } from '../../../common/command/arguments.ts';
import { form, type Command, type CommandContext } from '../../../common/command/command.ts';
import { systemClock } from '../../../common/clock.ts';
import { StartError } from '../../../common/errors.ts';
import {
  listDeadLetters,
  readDeadLetter,
  replayAll,
  replayDeadLetter,
  type Coordinates,
  type DeadLetter,
  type DeadLetterFilter,
  type ReplayOptions,
  type ReplayOutcome,
} from '../dead-letters.ts';
import { createDecoders } from '../service.ts';
import { reasons, type Reason } from '../evaluate/record.ts';

type Args =
  | { readonly do: 'list'; readonly filter: DeadLetterFilter; readonly limit: number }
  | { readonly do: 'show' | 'replay'; readonly at: Coordinates }
  | { readonly do: 'replay_all'; readonly filter: DeadLetterFilter };

type Result =
  | {
      readonly dead_letters: readonly (Omit<DeadLetter, 'incarnation' | 'offset'> & { readonly offset: number })[];
      readonly more?: true;
    }
  | (Pick<DeadLetter, 'topic' | 'partition' | 'reason' | 'detail'> & {
      readonly offset: number;
      readonly value_base64: string;
    })
  | { readonly replayed: { readonly [outcome in ReplayOutcome]?: number } };

const LIMIT = 1_000;
const MOST_LETTERS = 1_000_000;
/** It refuses a misspelt reason, which would find nothing, as if all were well. */
const FILTER = {
  type: 'object',
  properties: { topic: TOPIC, reason: { type: 'string', enum: reasons }, open: { type: 'boolean' } },
  additionalProperties: false,
};
const AT = {
  type: 'object',
  properties: { topic: TOPIC, partition: PARTITION, offset: { type: 'string', pattern: '^[0-9]{1,18}$' } },
  required: ['topic', 'partition', 'offset'],
  additionalProperties: false,
};

const COORDINATES = ['TOPIC', 'PARTITION', 'OFFSET'] as const;

/** Returns what replays need, with today's settings. */
export function replayOptionsOf({
  clickhouse,
  settings,
}: Pick<CommandContext, 'clickhouse' | 'settings'>): ReplayOptions {
  return {
    clickhouse,
    decoders: createDecoders(settings, systemClock),
    retentionDays: settings.RAW_RETENTION_DAYS,
    maxEventBytes: settings.MAX_EVENT_BYTES,
    rawAvroTopics: settings.KAFKA_RAW_AVRO_TOPICS,
    clock: systemClock,
  };
}

function readCoordinates([topic, partition, offset]: readonly [string, string, string]): Coordinates {
  return { topic, partition: wholeNumber(partition), offset };
}

export const deadLettersCommand: Command<Args, Result> = {
  name: 'dead-letters',
  about: `A replay evaluates a letter again with the rules and settings of the process that runs it: npm start, or this command. It writes the row with
its original coordinates, once. The exit code is 1 if one was not stored. Outcome "unfinished": its batch is not finished yet; try again.`,
  by: 'do',
  forms: {
    list: form({
      help: 'lists dead letters; --open: only those that were not replayed',
      options: { topic: { value: 'TOPIC' }, reason: { value: 'REASON' }, open: {}, limit: { value: 'N' } },
      schema: {
        properties: { filter: FILTER, limit: { type: 'integer', minimum: 1, maximum: MOST_LETTERS } },
        required: ['filter', 'limit'],
      },
      read: ({ topic, reason, open, limit = String(LIMIT) }): Args => ({
        do: 'list',
        filter: { topic, reason: reason as Reason | undefined, ...(open && { open }) },
        limit: wholeNumber(limit),
      }),
    }),
    show: form({
      help: 'writes the original bytes to stdout',
      words: COORDINATES,
      schema: { properties: { at: AT }, required: ['at'] },
      read: (_, words): Args => ({ do: 'show', at: readCoordinates(words) }),
    }),
    replay: form({
      help: 'replays one letter',
      words: COORDINATES,
      schema: { properties: { at: AT }, required: ['at'] },
      read: (_, words): Args => ({ do: 'replay', at: readCoordinates(words) }),
    }),
    replay_all: form({
      help: 'replays all letters of a topic, 25 a second; Ctrl-C ends it, and it may be repeated',
      action: 'replay',
      options: { topic: { value: 'TOPIC', isRequired: true }, reason: { value: 'REASON' } },
      schema: { properties: { filter: { ...FILTER, required: ['topic'] } }, required: ['filter'] },
      read: ({ topic, reason }): Args => ({
        do: 'replay_all',
        filter: { topic, reason: reason as Reason | undefined },
      }),
    }),
  },

  async run({ clickhouse, settings, signal }, args) {
    if (args.do === 'list') {
      const found = await listDeadLetters(clickhouse, args.filter, args.limit + 1);
      return {
        dead_letters: found
          .slice(0, args.limit)
          .map(({ incarnation: _, ...of }) => ({ ...of, offset: Number(of.offset) })),
        ...(found.length > args.limit && { more: true }),
      };
    }
    const replaying = replayOptionsOf({ clickhouse, settings });
    if (args.do === 'replay_all') return { replayed: await replayAll(replaying, args.filter, signal) };
    const { topic, partition, offset } = args.at;
    const letter = await readDeadLetter(clickhouse, args.at);
    if (letter === undefined) throw new StartError(`there is no dead letter at ${topic} ${partition} ${offset}`);
    if (args.do === 'replay') return { replayed: { [await replayDeadLetter(replaying, letter)]: 1 } };
    const { reason, detail, record } = letter;
    return { topic, partition, offset: Number(offset), reason, detail, value_base64: record.value!.toString('base64') };
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
    return `${result.dead_letters.map((d) => `${d.topic} ${d.partition} ${d.offset}  ${d.reason}${d.detail === '' ? '' : ` (${d.detail})`}${d.replayed_at === null ? '' : `  replayed ${d.replayed_at}`}`).join('\n')}\n${result.more === true ? 'there are more: --limit N\n' : ''}`;
  },

  exitCode: (result) =>
    'replayed' in result && Object.keys(result.replayed).some((outcome) => outcome !== 'stored') ? 1 : 0,
};
