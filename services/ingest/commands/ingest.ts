import { PARTITION, TOPIC, wholeNumber } from '../../../common/command/arguments.ts';
import { form, type Command } from '../../../common/command/command.ts';
import { readPauses, resumePartition, type Pause } from '../store/bad-share-pause.ts';

type Args =
  | { readonly action: 'paused' }
  | { readonly action: 'resume'; readonly topic: string; readonly partition: number };

type PausedPartition = Omit<Pause, 'incarnation' | 'leftMs'>;

type Result = { readonly paused: readonly PausedPartition[] } | { readonly resumed: readonly PausedPartition[] };

export const ingestCommand: Command<Args, Result> = {
  name: 'ingest',
  about:
    'Without arguments, this runs the service, which writes Kafka into the raw tables (npm run ingest); it takes --check-config.',
  forms: {
    paused: form({
      help: 'shows partitions that are paused because too many of their last messages were bad',
      read: (): Args => ({ action: 'paused' }),
    }),
    resume: form({
      help: 'resumes a partition within two seconds and forgets its bad messages; exit code 1 if it is not paused',
      words: ['TOPIC', 'PARTITION'],
      schema: { properties: { topic: TOPIC, partition: PARTITION }, required: ['topic', 'partition'] },
      read: (_, [topic, partition]): Args => ({ action: 'resume', topic, partition: wholeNumber(partition) }),
    }),
  },

  async run({ clickhouse }, args) {
    const pauses = await readPauses(clickhouse, args.action === 'resume' ? args : undefined);
    const paused = pauses.filter((p) => p.leftMs > 0).map(({ incarnation: _, leftMs: __, ...paused }) => paused);
    if (args.action === 'paused') return { paused };
    if (paused.length > 0) await resumePartition(clickhouse, args.topic, args.partition);
    return { resumed: paused };
  },

  print(result) {
    if ('resumed' in result) {
      if (result.resumed.length === 0) return 'the partition is not paused\n';
      return result.resumed.map(({ topic, partition }) => `${topic} ${partition} is resumed\n`).join('');
    }
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
