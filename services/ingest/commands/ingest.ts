import { PARTITION, TOPIC, oneOfActions } from '../../../common/command/arguments.ts';
import { UsageError, type Command } from '../../../common/command/command.ts';
import { readPauses, resumePartition } from '../bad-share-pause.ts';

type Args =
  | { readonly action: 'paused' }
  | { readonly action: 'resume'; readonly topic: string; readonly partition: number };

interface PausedPartition {
  readonly topic: string;
  readonly partition: number;
  /** first offset that is not yet taken */
  readonly next: string;
  readonly bad: number;
  readonly messages: number;
  readonly paused_until: string;
}

type Result = { readonly paused: readonly PausedPartition[] } | { readonly resumed: readonly PausedPartition[] };

export const ingestCommand: Command<Args, Result> = {
  name: 'ingest',
  help: `npm run ingest                              the service: Kafka into the raw tables
npm run ingest -- paused                    partitions that are paused because too many of their last messages were bad
npm run ingest -- resume TOPIC PARTITION    lets one go on now, within two seconds; what was bad before counts no more. Exit code 1 where it is not paused`,
  args: oneOfActions('action', {
    paused: {},
    resume: { properties: { topic: TOPIC, partition: PARTITION }, required: ['topic', 'partition'] },
  }),
  options: {},

  readArgs(_, [action, topic, partition, ...rest]) {
    if (action === 'paused' && topic === undefined) return { action };
    if (action === 'resume' && topic !== undefined && /^\d{1,9}$/.test(partition ?? '') && rest.length === 0)
      return { action, topic, partition: Number(partition) };
    throw new UsageError('ingest takes paused, or resume TOPIC PARTITION');
  },

  async run({ clickhouse }, args) {
    const pauses = await readPauses(clickhouse, args.action === 'resume' ? args : undefined);
    const paused = pauses
      .filter((p) => p.leftMs > 0)
      .map(({ topic, partition, next, bad, messages, pausedUntil }) => ({
        topic,
        partition,
        next: String(next),
        bad,
        messages,
        paused_until: pausedUntil,
      }));
    if (args.action === 'paused') return { paused };
    if (paused.length > 0) await resumePartition(clickhouse, args.topic, args.partition);
    return { resumed: paused };
  },

  print(result) {
    if ('resumed' in result) return result.resumed.length === 0 ? 'it is not paused\n' : 'it goes on\n';
    if (result.paused.length === 0) return 'no partition is paused\n';
    return result.paused
      .map(
        (p) =>
          `${p.topic} ${p.partition}: ${p.bad} of its last ${p.messages} messages are dead letters; paused at offset ${p.next} until ${p.paused_until}\n`,
      )
      .join('');
  },

  exitCode: (result) => ('resumed' in result && result.resumed.length === 0 ? 1 : 0),
};
