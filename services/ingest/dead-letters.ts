import { INTEGERS_AS_TEXT, select, type ClickHouse, type Param } from '../../common/clickhouse/clickhouse.ts';
import type { Clock } from '../../common/clock.ts';
import { sources, type SourceName } from '../../common/sources.ts';
import type { AvroDecoder } from './avro/decoder.ts';
import { encodeFrames, FRAME_STRUCTURE, type Frame } from './frames.ts';
import { createMessageReader } from './message.ts';
import type { Reason, Record } from './record.ts';
import { judgementOf, mappingOf, statements, verdictIn } from './statements.ts';
import { rejectionOf, withProbe } from './store.ts';

/** Where a message stands. */
export interface Coordinates {
  readonly topic: string;
  readonly partition: number;
  readonly offset: string;
}

export interface DeadLetter extends Coordinates {
  readonly incarnation: number;
  readonly reason: Reason;
  readonly detail: string;
  /** ISO 8601, or null where it was not replayed */
  readonly replayed_at: string | null;
}

export interface DeadLetterContent extends DeadLetter {
  readonly source: SourceName;
  readonly batchLast: number;
  readonly record: Record;
}

export interface DeadLetterFilter {
  /** absent = any */
  readonly topic?: string;
  readonly reason?: Reason;
  /** only those that were not replayed */
  readonly open?: boolean;
}

const PAGE = 500;
const START: DeadLetter = { topic: '', incarnation: 0, partition: 0, offset: '-1', reason: 'not_an_event', detail: '', replayed_at: null };
/** A replay is an insert of its own; more of them in a second make more parts than merges keep up with. */
export const REPLAYS_PER_SECOND = 25;

/** Dead letters in the order of their coordinates, `limit` at most, after another one. */
export async function listDeadLetters(clickhouse: ClickHouse, { topic = '', reason, open = false }: DeadLetterFilter, limit: number = PAGE, after: DeadLetter = START): Promise<DeadLetter[]> {
  return select<DeadLetter>(clickhouse, statements.deadLetters, {
    topic, reason: reason ?? '', open, limit,
    after_topic: after.topic, after_incarnation: after.incarnation, after_partition: after.partition, after_offset: after.offset,
  }, INTEGERS_AS_TEXT);
}

/** The dead letter at these coordinates with its original bytes, or undefined; without an incarnation that of the last life of the topic which has one there. */
export async function readDeadLetter(clickhouse: ClickHouse, { topic, partition, offset, incarnation }: Coordinates & { readonly incarnation?: number }): Promise<DeadLetterContent | undefined> {
  type Row = Omit<DeadLetter, 'replayed_at'> & { source: string; batch_last: string; record_time: string; key: string | null; headers: [string, string | null][]; value: string };
  const [row] = await select<Row>(clickhouse, statements.deadLetter, { topic, partition, offset, incarnation: incarnation ?? null }, INTEGERS_AS_TEXT);
  const source = sources.find((s) => s.name === row?.source)?.name;
  if (row === undefined || source === undefined) return undefined;
  const bytes = (digits: string | null): Buffer | null => (digits === null ? null : Buffer.from(digits, 'hex'));
  return {
    topic, partition, offset, source,
    incarnation: row.incarnation,
    reason: row.reason,
    detail: row.detail,
    replayed_at: null,
    batchLast: Number(row.batch_last),
    record: { offset: Number(offset), time: Number(row.record_time), key: bytes(row.key), value: bytes(row.value), headers: row.headers.map(([name, value]) => [name, bytes(value)]) },
  };
}

export interface ReplayOptions {
  readonly clickhouse: ClickHouse;
  readonly decoders: ReadonlyMap<SourceName, AvroDecoder>;
  readonly retentionDays: number;
  readonly maxEventBytes: number;
  readonly clock: Clock;
}

/** `stored` = it is a row now; else today's reason why it is not. */
export type ReplayOutcome = 'stored' | Reason;

/**
 * Judges a dead letter again with today's rules and, where it passes, writes its row with its original coordinates and marks the letter.
 * Once, however often it is repeated or where it is killed: a row that is there is not written again, and a row on its way has the same token.
 * Throws ClickHouseError or RegistryError when the answer is not known.
 */
export async function replayDeadLetter({ clickhouse, decoders, retentionDays, maxEventBytes, clock }: ReplayOptions, letter: DeadLetterContent): Promise<ReplayOutcome> {
  const { source, topic, incarnation, partition, offset, record } = letter;
  const where = { topic, incarnation, partition, offset };
  const [found] = await select<{ rows: string }>(clickhouse, statements.rowsAt, { ...where, source }, INTEGERS_AS_TEXT);
  if (Number(found?.rows ?? 0) === 0) {
    const messages = createMessageReader(decoders.get(source)!, maxEventBytes);
    const [frame] = [...await messages.frames([record], await messages.schemaIds([record]))];
    if (frame!.reason !== '') return frame!.reason as Reason;
    const insert = mappedInsert(withProbe(frame!), {
      topic, partition, incarnation, batch_last: letter.batchLast, retention_days: retentionDays,
      judged_at: new Date(clock()).toISOString().replace('T', ' ').slice(0, 23),
    });
    const verdict = await judge(clickhouse, source, insert);
    if (verdict !== undefined) return verdict;
    const token = `replay:${topic}:${incarnation}:${partition}:${offset}`;
    if (await rejectionOf(clickhouse.insert({ ...insert, sql: mappingOf(source, 'exact'), settings: { insert_deduplication_token: token } })) !== undefined) return 'rejected_by_store';
  }
  await clickhouse.execute({ sql: statements.markReplayed, params: { ...where, source }, settings: { async_insert: 0 } });
  return 'stored';
}

/** Replays every open letter of the filter, one after the other. */
export async function replayAll(options: ReplayOptions, filter: DeadLetterFilter): Promise<{ readonly [outcome in ReplayOutcome]?: number }> {
  const outcomes: { [outcome in ReplayOutcome]?: number } = {};
  let after = START;
  for (;;) {
    const page = await listDeadLetters(options.clickhouse, { ...filter, open: true }, PAGE, after);
    for (const letter of page) {
      after = letter;
      const started = performance.now();
      const content = await readDeadLetter(options.clickhouse, letter);
      if (content === undefined) continue;
      const outcome = await replayDeadLetter(options, content);
      outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
      const left = 1000 / REPLAYS_PER_SECOND - (performance.now() - started);
      if (left > 0) await new Promise((resolve) => { setTimeout(resolve, left); });
    }
    if (page.length < PAGE) return outcomes;
  }
}

type MappedInsert = { readonly structure: string; readonly frames: Iterable<Uint8Array>; readonly params: { readonly [name: string]: Param } };

function mappedInsert(frame: Frame, params: MappedInsert['params']): MappedInsert {
  return { structure: FRAME_STRUCTURE, frames: encodeFrames([frame]), params };
}

/** Why the mapping does not take it; undefined = it does. Writes nothing. */
async function judge(clickhouse: ClickHouse, source: SourceName, insert: MappedInsert): Promise<Reason | undefined> {
  const rejection = await rejectionOf(clickhouse.insert({ ...insert, sql: judgementOf(source), settings: { insert_deduplicate: 0 } }));
  if (rejection === undefined) return undefined;
  return verdictIn(rejection.message) ?? 'rejected_by_store';
}
