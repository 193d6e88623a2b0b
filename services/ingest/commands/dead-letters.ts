import { PARTITION, TOPIC, oneOfActions } from '../../../common/command/arguments.ts';
import { UsageError, type Command } from '../../../common/command/command.ts';
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
  type ReplayOutcome,
} from '../dead-letters.ts';
import { createDecoders } from '../service.ts';
import { reasons } from '../record.ts';

type Args =
  | { readonly do: 'list'; readonly filter: DeadLetterFilter; readonly limit: number }
  | { readonly do: 'show' | 'replay'; readonly at: Coordinates }
  | { readonly do: 'replay_all'; readonly filter: DeadLetterFilter };

type Result =
  | {
      readonly dead_letters: readonly Pick<
        DeadLetter,
        'topic' | 'partition' | 'offset' | 'reason' | 'detail' | 'replayed_at'
      >[];
      readonly more?: true;
    }
  | {
      readonly topic: string;
      readonly partition: number;
      readonly offset: string;
      readonly reason: string;
      readonly detail: string;
      readonly value_base64: string;
    }
  | { readonly replayed: { readonly [outcome in ReplayOutcome]?: number } };

const LIMIT = 1_000;
const MOST_LETTERS = 1_000_000;
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

export const deadLettersCommand: Command<Args, Result> = {
  name: 'dead-letters',
  help: `npm run dead-letters -- list [--topic T] [--reason R] [--open] [--limit N]
npm run dead-letters -- show TOPIC PARTITION OFFSET          the original bytes, on stdout
npm run dead-letters -- replay TOPIC PARTITION OFFSET
npm run dead-letters -- replay --topic T [--reason R]
replay evaluates a letter again with today's rules and writes its row with its original coordinates, once. Exit code 1 where one was not stored.
unfinished: its batch is not finished yet; try again.`,
  args: oneOfActions('do', {
    list: {
      properties: { filter: FILTER, limit: { type: 'integer', minimum: 1, maximum: MOST_LETTERS } },
      required: ['filter', 'limit'],
    },
    show: { properties: { at: AT }, required: ['at'] },
    replay: { properties: { at: AT }, required: ['at'] },
    replay_all: { properties: { filter: { ...FILTER, required: ['topic'] } }, required: ['filter'] },
  }),
  options: {
    topic: { type: 'string' },
    reason: { type: 'string' },
    open: { type: 'boolean' },
    limit: { type: 'string' },
  },

  readArgs(values, [verb, ...rest]) {
    const reason = reasons.find((r) => r === values['reason']);
    if (values['reason'] !== undefined && reason === undefined)
      throw new UsageError(`--reason takes one of ${reasons.join(', ')}`);
    const filter: DeadLetterFilter = {
      ...(typeof values['topic'] === 'string' ? { topic: values['topic'] } : {}),
      ...(reason === undefined ? {} : { reason }),
      ...(values['open'] === true ? { open: true } : {}),
    };
    if (verb === 'list' && rest.length === 0) {
      const limit = Number(values['limit'] ?? LIMIT);
      if (!Number.isInteger(limit) || limit < 1 || limit > MOST_LETTERS)
        throw new UsageError(`--limit takes an integer from 1 to ${MOST_LETTERS}`);
      return { do: 'list', filter, limit };
    }
    if (verb === 'replay' && rest.length === 0) {
      if (filter.topic === undefined) throw new UsageError('replay takes TOPIC PARTITION OFFSET, or --topic');
      return { do: 'replay_all', filter };
    }
    const [topic, partition, offset, ...more] = rest;
    if (
      (verb !== 'show' && verb !== 'replay') ||
      topic === undefined ||
      !/^\d{1,9}$/.test(partition ?? '') ||
      !/^\d{1,18}$/.test(offset ?? '') ||
      more.length > 0
    ) {
      throw new UsageError('dead-letters takes list, show TOPIC PARTITION OFFSET, or replay');
    }
    return { do: verb, at: { topic, partition: Number(partition), offset: offset! } };
  },

  async run({ clickhouse, settings }, args) {
    if (args.do === 'list') {
      const found = await listDeadLetters(clickhouse, args.filter, args.limit + 1);
      return {
        dead_letters: found.slice(0, args.limit).map(({ topic, partition, offset, reason, detail, replayed_at }) => ({
          topic,
          partition,
          offset,
          reason,
          detail,
          replayed_at,
        })),
        ...(found.length > args.limit && { more: true }),
      };
    }
    const replaying = {
      clickhouse,
      decoders: createDecoders(settings, systemClock),
      retentionDays: settings.RAW_RETENTION_DAYS,
      maxEventBytes: settings.MAX_EVENT_BYTES,
      rawAvroTopics: settings.KAFKA_RAW_AVRO_TOPICS,
      clock: systemClock,
    };
    if (args.do === 'replay_all') return { replayed: await replayAll(replaying, args.filter) };
    const { topic, partition, offset } = args.at;
    const letter = await readDeadLetter(clickhouse, args.at);
    if (letter === undefined) throw new StartError(`there is no dead letter at ${topic} ${partition} ${offset}`);
    if (args.do === 'replay') return { replayed: { [await replayDeadLetter(replaying, letter)]: 1 } };
    return {
      topic,
      partition,
      offset,
      reason: letter.reason,
      detail: letter.detail,
      value_base64: letter.record.value!.toString('base64'),
    };
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
