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
  /** ids of the schema registry that the batch's messages are decoded with; any other in them is unknown to it, also when registered later. Absent = none */
  readonly schemaIds?: readonly number[];
  /** What is missing of a batch whose intent was lost, judged with other schema ids than the rest of it, perhaps. Absent = no */
  readonly isRest?: boolean;
}

/** As it stands in a commit, of whose metadata Kafka takes 4 KiB: `i:incarnation:first-last:judged_at[:id,id...]`, `r:` for a rest. */
export function encodeIntent({ incarnation, first, last, judgedAt, schemaIds = [], isRest = false }: Intent): string {
  return `${isRest ? 'r' : 'i'}:${incarnation}:${first}-${last}:${judgedAt}${schemaIds.length === 0 ? '' : `:${schemaIds.join(',')}`}`;
}

/** The intent in a commit's metadata, or undefined where there is none (an idle commit, another program's commit). */
export function decodeIntent(metadata: string | null | undefined): Intent | undefined {
  const match = /^([ir]):(\d{1,10}):(\d{1,16})-(\d{1,16}):(\d{1,16})(?::(\d{1,10}(?:,\d{1,10})*))?$/.exec(metadata ?? '');
  if (match === null) return undefined;
  const [incarnation, first, last, judgedAt] = match.slice(2, 6).map(Number);
  return { incarnation: incarnation!, first: first!, last: last!, judgedAt: judgedAt!, ...(match[6] === undefined ? {} : { schemaIds: match[6].split(',').map(Number) }), ...(match[1] === 'r' ? { isRest: true } : {}) };
}

/**
 * One token per batch: the same batch inserted again counts once in its raw table, in dead_letters and in every rollup.
 * Made of what each of its rows carries, so that it is known also where the intent is lost. No two batches of a partition have one moment of judgement.
 */
export function tokenOf(topic: string, partition: number, { incarnation, last, judgedAt, isRest = false }: Intent): string {
  return `${topic}:${incarnation}:${partition}:${last}:${judgedAt}${isRest ? ':rest' : ''}`;
}
