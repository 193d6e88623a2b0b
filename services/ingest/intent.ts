/**
 * What a batch's rows depend on besides the bytes in Kafka, written into the group's commit metadata before the batch is:
 * whoever takes the partition next re-forms the same batch from it, with the same verdicts and the same token.
 */
export interface Intent {
  /** life of the topic, counted from 0 */
  readonly incarnation: number;
  readonly first: number;
  readonly last: number;
  /** unix milliseconds; the moment at which the batch's messages are judged */
  readonly judgedAt: number;
}

export function encodeIntent({ incarnation, first, last, judgedAt }: Intent): string {
  return `i:${incarnation}:${first}-${last}:${judgedAt}`;
}

/** The intent in a commit's metadata, or undefined where there is none (an idle commit, another program's commit). */
export function decodeIntent(metadata: string | null | undefined): Intent | undefined {
  const match = /^i:(\d{1,10}):(\d{1,16})-(\d{1,16}):(\d{1,16})$/.exec(metadata ?? '');
  if (match === null) return undefined;
  const [incarnation, first, last, judgedAt] = match.slice(1).map(Number);
  return { incarnation: incarnation!, first: first!, last: last!, judgedAt: judgedAt! };
}

/** One token per batch: the same batch inserted again counts once in its raw table, in dead_letters and in every rollup. */
export function tokenOf(topic: string, partition: number, { incarnation, first, last }: Intent): string {
  return `${topic}:${incarnation}:${partition}:${first}-${last}`;
}
