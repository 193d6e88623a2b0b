import { setTimeout as sleep } from 'node:timers/promises';
import {
  fresh,
  freshly,
  INTEGERS_AS_TEXT,
  select,
  type ClickHouse,
  type Reader,
} from '../../../common/clickhouse/clickhouse.ts';
import { ClickHouseError } from '../../../common/clickhouse/errors.ts';
import type { Clock } from '../../../common/clock.ts';
import { sources, type SourceName } from '../../../common/sources.ts';
import type { AvroDecoder } from '../avro/decoder.ts';
import { storeBatch } from '../delivery/store-batch.ts';
import { evaluateBatch, rulesFor, type Rules } from '../evaluate/evaluate.ts';
import { rawInsert } from '../evaluate/raw-rows.ts';
import type { Reason } from '../evaluate/record.ts';
import { insertOf, type RowColumns } from '../evaluate/row-binary.ts';
import { findShard } from '../store/shard.ts';
import { statements } from '../store/statements.ts';

/** Where one dead letter is; without an incarnation, in the last life of the topic that has one there. */
export interface Coordinates {
  readonly topic: string;
  readonly incarnation?: number | undefined;
  readonly partition: number;
  readonly offset: string;
}

export interface LetterPlace extends Coordinates {
  readonly incarnation: number;
}

interface DeadLetter extends LetterPlace {
  readonly reason: Reason;
  readonly detail: string;
  /** ISO 8601, or null where it was not replayed */
  readonly replayed_at: string | null;
}

type DeadLetterContent = NonNullable<Awaited<ReturnType<typeof readDeadLetter>>>;

export interface DeadLetterFilter {
  /** absent = any */
  readonly topic?: string | undefined;
  readonly reason?: Reason | undefined;
  /** only those that were not replayed */
  readonly open?: boolean | undefined;
}

const PAGE = 500;
const START: LetterPlace = { topic: '', incarnation: 0, partition: 0, offset: '-1' };
/** A replay is an insert of its own; more of them in a second make more parts than merges keep up with. */
const REPLAYS_PER_SECOND = 25;

/** Dead letters in the order of their coordinates, `limit` at most, after another one. */
export async function listDeadLetters(
  clickhouse: ClickHouse,
  { topic = '', reason, open = false }: DeadLetterFilter,
  limit: number = PAGE,
  after: LetterPlace = START,
): Promise<DeadLetter[]> {
  return select<DeadLetter>(
    clickhouse,
    statements.deadLetters,
    {
      topic,
      reason: reason ?? '',
      open,
      limit,
      after_topic: after.topic,
      after_incarnation: after.incarnation,
      after_partition: after.partition,
      after_offset: after.offset,
    },
    INTEGERS_AS_TEXT,
  );
}

/** The dead letter at these coordinates with its original bytes, or undefined. */
export async function readDeadLetter(clickhouse: Reader, { topic, partition, offset, incarnation }: Coordinates) {
  type Row = Pick<DeadLetter, 'incarnation' | 'reason' | 'detail'> & {
    source: string;
    batch_last: number;
    record_time: number;
    key: string | null;
    headers: [string, string | null][];
    value: string;
  };
  const [row] = await select<Row>(clickhouse, statements.deadLetter, {
    topic,
    partition,
    offset,
    incarnation: incarnation ?? null,
  });
  const source = sources.find((s) => s.name === row?.source)?.name;
  if (row === undefined || source === undefined) return undefined;
  const { incarnation: life, reason, detail, batch_last: batchLast, record_time: time, headers } = row;
  const bytes = (digits: string | null): Buffer | null => (digits === null ? null : Buffer.from(digits, 'hex'));
  const record = {
    offset: Number(offset),
    time,
    key: bytes(row.key),
    value: bytes(row.value),
    headers: headers.map(([name, value]) => [name, bytes(value)] as const),
  };
  return { topic, partition, offset, source, incarnation: life, reason, detail, batchLast, record };
}

export interface ReplayOptions {
  readonly clickhouse: ClickHouse;
  readonly decoders: ReadonlyMap<SourceName, AvroDecoder>;
  readonly retentionDays: number;
  readonly maxEventBytes: number;
  /** topics whose messages are raw Avro datums */
  readonly rawAvroTopics: readonly string[];
  readonly clock: Clock;
}

/** `stored` = it is a row now; `unfinished` = its batch is not in the ledger yet; else today's reason why it is not. */
export type ReplayOutcome = 'stored' | 'unfinished' | Reason;

/**
 * Evaluates a dead letter again with today's rules. Where it passes, it writes the row with its original coordinates
 * and marks the letter. The replay is announced before: whoever completes it evaluates the letter as of the announced
 * moment and for the announced period, with its own settings. Of different rows the first one counts: all have one
 * token.
 * Throws ClickHouseError or RegistryError when the answer is not known.
 */
export async function replayDeadLetter(every: ReplayOptions, letter: DeadLetterContent): Promise<ReplayOutcome> {
  const { topic, incarnation, partition, offset, batchLast } = letter;
  const options = { ...every, clickhouse: await findShard(every.clickhouse, topic, partition) };
  const { clickhouse, clock } = options;
  const where = { topic, incarnation, partition, offset };
  const reader = fresh(clickhouse, ['batches', 'dead_letter_replays', 'rollup_periods']);
  const readState = async (): Promise<ReplayState> =>
    (await select<ReplayState>(reader, statements.replayState, { ...where, last: batchLast }))[0]!;
  const state = await readState();
  if (state.in_ledger !== 1) return 'unfinished';
  let announced = state.announced[0];
  if (announced === undefined) {
    const first = await evaluateLetter(options, letter, { evaluatedAt: clock(), period: state.period });
    if (first.reason !== undefined) return first.reason;
    for (let attempt = 0; announced === undefined; attempt++) {
      await announceReplay(clickhouse, where, first.rules, first.evaluated.minTimestamp, attempt);
      announced = (await readState()).announced[0];
    }
  }
  const reason = await storeLetter(options, letter, announced, state.least_period);
  if (reason !== undefined) return reason;
  await clickhouse.execute({ sql: statements.markReplayed, params: where, ...freshly(['dead_letter_replays']) });
  return 'stored';
}

/**
 * Says as of which moment and for which period a letter is evaluated. Of several announcements of a letter the first
 * one counts. `timestamp`: of the event, unix microseconds. `attempt`: one more if no announcement is there after one
 * that succeeded, because a token can outlive its part.
 */
export async function announceReplay(
  clickhouse: Pick<ClickHouse, 'insertRows'>,
  letter: LetterPlace,
  rules: Pick<Rules, 'evaluatedAt' | 'version' | 'period'>,
  timestamp: number | undefined,
  attempt = 0,
): Promise<void> {
  const token = `replay:${letter.topic}:${letter.incarnation}:${letter.partition}:${letter.offset}`;
  await clickhouse.insertRows({
    ...insertOf('dead_letter_replays', REPLAY_COLUMNS, [{ ...letter, ...rules, timestamp }]),
    settings: { insert_deduplication_token: attempt === 0 ? token : `${token}:${attempt}` },
  });
}

type ReplayRow = LetterPlace & Pick<Rules, 'evaluatedAt' | 'version' | 'period'> & { timestamp: number | undefined };
/** The columns of dead_letter_replays. */
const REPLAY_COLUMNS: RowColumns<ReplayRow> = {
  kafka_topic: (out, { topic }) => out.text(topic),
  kafka_incarnation: (out, { incarnation }) => out.uint32(incarnation),
  kafka_partition: (out, { partition }) => out.uint32(partition),
  kafka_offset: (out, { offset }) => out.int64(Number(offset)),
  done: (out) => out.uint8(0),
  evaluated_at: (out, { evaluatedAt }) => out.int64(evaluatedAt),
  rules: (out, { version }) => out.uint16(version),
  period: (out, { period }) => out.uint32(period),
  timestamp: (out, { timestamp }) => out.orNull(timestamp, (v) => out.int64(v)),
};

interface ReplayState {
  /** 1 = the batch that the letter is of is finished */
  readonly in_ledger: number;
  /** unix seconds: the newest period, and the least that a row of the letter's batch may have */
  readonly period: number;
  readonly least_period: number;
  /** the announcement that counts, if there is one */
  readonly announced: readonly Announcement[];
}

type Announcement = Pick<Rules, 'evaluatedAt' | 'period'>;

async function evaluateLetter(
  { decoders, retentionDays, maxEventBytes, rawAvroTopics }: ReplayOptions,
  letter: DeadLetterContent,
  announced: Announcement,
) {
  const { source, topic, incarnation, partition, batchLast, record } = letter;
  const avro = decoders.get(source)!;
  const today = { retentionDays, maxEventBytes, rawAvro: rawAvroTopics.includes(topic) };
  const rules = await rulesFor(avro, [record], today, announced);
  await avro.load(rules.schemaIds, [record.value!]);
  const evaluated = await evaluateBatch(source, { topic, partition, incarnation, batchLast }, rules, [record], avro);
  return { evaluated, rules, reason: [...evaluated.reasons.keys()][0] };
}

/**
 * The row of a letter, by the recovery of an open batch. Returns why the letter is none, where it is none and was not
 * stored before.
 */
async function storeLetter(
  options: ReplayOptions,
  letter: DeadLetterContent,
  announced: Announcement,
  leastPeriod: number,
): Promise<Reason | undefined> {
  const { clickhouse } = options;
  const { source, topic, incarnation, partition, offset, record, batchLast } = letter;
  const { evaluated, rules, reason } = await evaluateLetter(options, letter, announced);
  const queryId = `replay:${topic}:${incarnation}:${partition}:${offset}`;
  const place = {
    source,
    topic,
    partition,
    incarnation,
    first: record.offset,
    last: record.offset,
    period: Math.min(leastPeriod, announced.period),
  };
  const count = async (): Promise<number> =>
    (await select<{ rows: number }>(fresh(clickhouse, [source]), statements.rowsAt, { ...place }))[0]!.rows;
  if (reason !== undefined && (await count()) === 0) return reason;
  let looks = 0;
  await storeBatch(
    {
      // Another replay of the letter writes the same row under the same token. It is ended where its part does not
      // come, and where the row is there: once the letter is marked, rollups may be built before its views are filled.
      async endRunning() {
        if (looks++ > 0 || (await count()) > 0) await clickhouse.killInsert(queryId);
      },
      async found() {
        const rows = await count();
        return {
          offsets: new Set(rows > 0 ? [record.offset] : []),
          stored: { rows, deadLetters: 0, minTimestamp: undefined },
        };
      },
      async insert(_batch, _without, attempt) {
        const token = `${queryId}:${announced.evaluatedAt}${attempt === 0 ? '' : `:${attempt}`}`;
        try {
          await clickhouse.insertRows({
            ...rawInsert([evaluated.rows]),
            settings: { insert_deduplication_token: token },
            queryIds: [queryId],
          });
        } catch (error) {
          // by killInsert() of another replay
          const isEnded = error instanceof ClickHouseError && error.codeName === 'QUERY_WAS_CANCELLED';
          if (isEnded && (await count()) > 0) return 'unfinished';
          throw error;
        }
        return { rows: 1, deadLetters: 0, minTimestamp: evaluated.minTimestamp };
      },
      requestRepair: () =>
        clickhouse.execute({ sql: statements.requestRepairs, params: place, ...freshly([source, 'rollup_repairs']) }),
    },
    { incarnation, first: record.offset, last: batchLast, rules, records: [record] },
    { mayBeThere: true, needsRepair: false },
    async () => undefined,
  );
  return undefined;
}

/** Returns the place of a letter, which a list or a replay goes on behind. */
export function placeOf({ topic, incarnation, partition, offset }: LetterPlace): LetterPlace {
  return { topic, incarnation, partition, offset };
}

async function* openLetters(
  clickhouse: ClickHouse,
  filter: DeadLetterFilter,
  after: LetterPlace,
): AsyncGenerator<DeadLetter> {
  for (;;) {
    const page = await listDeadLetters(clickhouse, { ...filter, open: true }, PAGE, after);
    yield* page;
    const last = page.at(-1);
    if (last === undefined || page.length < PAGE) return;
    after = last;
  }
}

/**
 * Replays the open letters of the filter behind a place, one after the other, `limit` at most, until the signal fires.
 * Returns how many had which outcome. `next` is the place to go on behind; null = that was all.
 */
export async function replayAll(
  options: ReplayOptions,
  filter: DeadLetterFilter,
  { after = START, limit = Infinity }: { readonly after?: LetterPlace; readonly limit?: number } = {},
  signal?: AbortSignal,
) {
  const replayed: { [outcome in ReplayOutcome]?: number } = {};
  let last = after;
  let tried = 0;
  for await (const letter of openLetters(options.clickhouse, filter, after)) {
    if (tried === limit || signal?.aborted === true) return { replayed, next: placeOf(last) };
    tried++;
    last = letter;
    const started = performance.now();
    const content = await readDeadLetter(options.clickhouse, letter);
    if (content === undefined) continue;
    const outcome = await replayDeadLetter(options, content);
    replayed[outcome] = (replayed[outcome] ?? 0) + 1;
    await sleep(Math.max(0, 1000 / REPLAYS_PER_SECOND - (performance.now() - started)));
  }
  return { replayed, next: null };
}
