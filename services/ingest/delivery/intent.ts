import type { Rules } from '../evaluate/evaluate.ts';

/** A batch as it is announced in the group's commit metadata before anything of it is written. */
export interface Intent {
  /** life of the topic, counted from 0 */
  readonly incarnation: number;
  readonly first: number;
  readonly last: number;
  readonly rules: Rules;
}

const INTENT =
  /^b:(\d{1,10}):(\d{1,16})-(\d{1,16}):(\d{1,5}):(\d{1,16}):(\d{1,5}):(\d{1,16}):([01]):(\d{1,10})(?::(\d{1,10}(?:,\d{1,10})*))?$/;

/** `b:incarnation:first-last:version:evaluated_at:retention_days:max_event_bytes:raw_avro:period[:id,id...]` */
export function encodeIntent({ incarnation, first, last, rules }: Intent): string {
  const { version, evaluatedAt, retentionDays, maxEventBytes, rawAvro, schemaIds, period } = rules;
  const ids = schemaIds.length === 0 ? '' : `:${schemaIds.join(',')}`;
  return `b:${incarnation}:${first}-${last}:${version}:${evaluatedAt}:${retentionDays}:${maxEventBytes}:${rawAvro ? 1 : 0}:${period}${ids}`;
}

/** The intent in a commit's metadata. Undefined if there is none (an idle commit, another program's commit). */
export function decodeIntent(metadata: string | null | undefined): Intent | undefined {
  const match = INTENT.exec(metadata ?? '');
  if (match === null) return undefined;
  const number = (group: number): number => Number(match[group]);
  return {
    incarnation: number(1),
    first: number(2),
    last: number(3),
    rules: {
      version: number(4),
      evaluatedAt: number(5),
      retentionDays: number(6),
      maxEventBytes: number(7),
      rawAvro: number(8) === 1,
      period: number(9),
      schemaIds: match[10]?.split(',').map(Number) ?? [],
    },
  };
}

/**
 * The token of a batch. A table that remembers it stores the same batch once. It consists of what each row of the batch
 * carries, so it is known even if the intent is lost. `attempt`: 0 for the batch's own token. The engine may have noted
 * that token without its part; then the missing rows are inserted under 1, 2, ...
 */
export function tokenOf(
  topic: string,
  partition: number,
  { incarnation, last, rules }: Intent,
  attempt: number,
): string {
  return `${topic}:${incarnation}:${partition}:${last}:${rules.evaluatedAt}${attempt === 0 ? '' : `:${attempt}`}`;
}
