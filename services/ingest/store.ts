import {
  fresh,
  freshly,
  INTEGERS_AS_TEXT,
  select,
  type ClickHouse,
  type Reader,
} from '../../common/clickhouse/clickhouse.ts';
import { ClickHouseError } from '../../common/clickhouse/errors.ts';
import type { Clock } from '../../common/clock.ts';
import type { SourceName } from '../../common/sources.ts';
import type { AvroDecoder } from './avro/decoder.ts';
import { tokenOf } from './delivery/intent.ts';
import { send, type Contribution, type Seat } from './delivery/joint.ts';
import type { Ledger } from './delivery/ledger.ts';
import type { Batch, Ended, Fence, OrphanRows, Store, Stored } from './delivery/ports.ts';
import type { RegisterReader } from './delivery/register.ts';
import { DEAD_LETTER_COLUMNS, evaluateBatchInTurns, rawColumns, rulesFor, schemaIdsOf } from './evaluate/evaluate.ts';
import { recycled, RowBinary } from './evaluate/row-binary.ts';
import type { IngestMetrics } from './metrics.ts';
import { assertShard, type ShardOf } from './shard.ts';
import { checksum, formOf, type Record } from './evaluate/record.ts';
import { statements } from './statements.ts';

/** What the partitions of one process share, with the ClickHouse of one partition. */
export interface StoreContext {
  /** runs each statement on the partition's shard (shard.ts) */
  readonly clickhouse: ClickHouse;
  readonly shardOf: ShardOf;
  readonly group: string;
  readonly retentionDays: number;
  readonly maxEventBytes: number;
  readonly register: RegisterReader;
  readonly ledger: Ledger;
  readonly metrics: IngestMetrics;
  readonly clock: Clock;
}

export interface Target {
  readonly source: SourceName;
  readonly topic: string;
  readonly partition: number;
  readonly rawAvro: boolean;
  readonly avro: AvroDecoder;
}

/** The tables of one partition: see Store for what each function promises. */
export function createStore(context: StoreContext, place: Target): Store {
  return { ...readsOf(context, place), ...writesOf(context, place) };
}

function readsOf(
  context: StoreContext,
  place: Target,
): Pick<Store, 'ledgerEnd' | 'marks' | 'orphans' | 'firstDifference' | 'register'> {
  const { register, shardOf } = context;
  const { source, topic, partition } = place;
  const where = { topic, partition };
  const reader = freshReader(context, place);
  return {
    ledgerEnd: () => ledgerEnd(reader, where),

    async marks(incarnation) {
      type Row = { offset: string; record_time: string; checksum: number };
      const found = await select<Row>(reader, statements.ledgerMarks, { ...where, incarnation }, INTEGERS_AS_TEXT);
      return found.map((m) => ({ offset: Number(m.offset), time: Number(m.record_time), checksum: m.checksum }));
    },

    async orphans(incarnation, from, period) {
      type Row = {
        incarnation: number;
        last: string;
        evaluated_at: string;
        offsets: string[];
        dead_offsets: string[];
        min_timestamp: string | null;
      };
      const found = await select<Row>(
        reader,
        statements.orphanRows,
        { ...where, source, incarnation, from, period },
        INTEGERS_AS_TEXT,
      );
      return found.map((row): OrphanRows => ({
        incarnation: row.incarnation,
        last: Number(row.last),
        evaluatedAt: Number(row.evaluated_at),
        offsets: row.offsets.map(Number),
        deadOffsets: row.dead_offsets.map(Number),
        minTimestamp: row.min_timestamp === null ? undefined : Number(row.min_timestamp),
      }));
    },

    firstDifference: (incarnation, records) => firstDifference(context, place, incarnation, records),
    async register(fresh) {
      const found = await register.read(topic, partition, fresh);
      if (found.shard !== undefined)
        assertShard(topic, partition, found.shard, (await shardOf(topic, partition)).shard);
      return found;
    },
  };
}

/** Returns a reader for takeovers and recoveries: it sees every row that any writer knows to be stored. */
function freshReader({ clickhouse }: StoreContext, { source }: Target): Reader {
  return fresh(clickhouse, ['batches', 'dead_letters', source]);
}

function writesOf(
  context: StoreContext,
  place: Target,
): Pick<Store, 'claim' | 'rulesFor' | 'endRunning' | 'insert' | 'requestRepair' | 'record'> {
  const { clickhouse, shardOf, group, register, ledger } = context;
  const { source, topic, partition, avro } = place;
  const where = { topic, partition };
  return {
    async claim(epoch) {
      const claim = new RowBinary(0);
      claim.begin();
      claim.text(topic);
      claim.uint32(partition);
      claim.int64(epoch);
      claim.text(group);
      claim.text((await shardOf(topic, partition)).shard ?? '');
      await clickhouse.insertRows({
        table: 'partition_owners',
        columns: ['topic', 'partition', 'epoch', 'consumer_group', 'shard'],
        pieces: claim.take(),
        // of two claims of an epoch the first one counts
        settings: { insert_deduplication_token: `owner:${topic}:${partition}:${epoch}` },
      });
      register.forget();
    },

    rulesFor: (records, evaluatedAt, period) =>
      rulesFor(avro, records, settingsOf(context, place), { evaluatedAt, period }),

    endRunning: () => clickhouse.killInsert(queryIdOf(place)),
    insert: (batch, without, attempt, fence, seat) => insert(context, place, batch, without, attempt, fence, seat),

    async requestRepair({ incarnation, first, last }, period) {
      await clickhouse.execute({
        sql: statements.requestRepairs,
        params: { ...where, source, incarnation, first, last, period },
        settings: { async_insert: 0 },
        ...freshly([source]),
      });
    },

    record: (entry) => ledger({ source, topic, partition, group, entry }),
  };
}

/** What a verdict depends on today. */
function settingsOf({ retentionDays, maxEventBytes }: StoreContext, { rawAvro }: Target) {
  return { retentionDays, maxEventBytes, rawAvro };
}

/** One for all inserts of the partition: they are ended together. */
function queryIdOf({ topic, partition }: Target): string {
  return `ingest:${topic}:${partition}`;
}

async function insert(
  context: StoreContext,
  place: Target,
  batch: Batch,
  without: ReadonlySet<number>,
  attempt: number,
  fence: Fence,
  seat: Seat | undefined,
): Promise<Stored | 'unfinished' | Ended> {
  const { source, topic, partition, avro } = place;
  const { incarnation, last: batchLast, rules, records } = batch;
  await avro.load(rules.schemaIds);
  const at = { topic, partition, incarnation, batchLast };
  const evaluated = await evaluateBatchInTurns(source, at, rules, records, avro, without);
  const { rowOffsets, deadOffsets, minTimestamp } = evaluated;
  const queryId = queryIdOf(place);
  const token = tokenOf(topic, partition, batch, attempt);
  const done = context.metrics.insertSeconds.startTimer({ source });
  if (deadOffsets.length > 0) {
    const ended = await fence();
    if (ended !== undefined) return ended;
    await context.clickhouse.insertRows({
      table: 'dead_letters',
      columns: DEAD_LETTER_COLUMNS,
      pieces: recycled(evaluated.deadLetters),
      settings: { insert_deduplication_token: `${token}:dead` },
      queryIds: [queryId],
    });
  }
  const contribution: Contribution<RawRows> = {
    rows: { queryId, token, pieces: evaluated.rows },
    fence,
    send: (contributions) => insertRaw(context.clickhouse, source, contributions),
  };
  if (rowOffsets.length > 0) {
    const inserted = (await seat?.insert(contribution)) ?? (await send([contribution])).get(contribution)!;
    if (inserted !== 'done') return inserted;
  }
  done();
  observe(context, source, records, rowOffsets.length + deadOffsets.length);
  return { rows: rowOffsets.length, deadLetters: deadOffsets.length, minTimestamp };
}

/** Raw rows of one batch. */
interface RawRows {
  readonly queryId: string;
  readonly token: string;
  readonly pieces: readonly Uint8Array[];
}

/** Inserts raw rows as one block, under the token of the first batch. 'unfinished': a view failed, and the raw rows are there. */
async function insertRaw(
  clickhouse: ClickHouse,
  source: SourceName,
  contributions: readonly Contribution<RawRows>[],
): Promise<'done' | 'unfinished'> {
  const batches = contributions.map(({ rows }) => rows);
  const { token } = batches[0]!;
  try {
    await clickhouse.insertRows({
      table: source,
      columns: rawColumns(source),
      pieces: recycled(batches.flatMap(({ pieces }) => pieces)),
      settings: { insert_deduplication_token: token },
      queryIds: batches.map(({ queryId }) => queryId),
    });
    return 'done';
  } catch (error) {
    // the raw rows are there by then
    if (error instanceof ClickHouseError && error.message.includes(': while pushing to view ')) return 'unfinished';
    throw error;
  }
}

function observe(
  { metrics, clock }: StoreContext,
  source: SourceName,
  records: readonly Record[],
  events: number,
): void {
  metrics.events.inc({ source }, events);
  metrics.batchEvents.observe(events);
  const newest = records.reduce((max, r) => Math.max(max, r.time), -1);
  if (newest >= 0) metrics.freshness.set({ source }, (clock() - newest) / 1000);
}

async function firstDifference(
  context: StoreContext,
  place: Target,
  incarnation: number,
  records: readonly Record[],
): Promise<number | undefined> {
  const { source, topic, partition, avro } = place;
  if (records.length === 0) return undefined;
  const [first, last] = [records[0]!.offset, records.at(-1)!.offset];
  const stored = await select<{ offset: string; checksum: number; dead_time: string | null }>(
    freshReader(context, place),
    statements.storedChecksums,
    { topic, partition, source, incarnation, first, last },
    INTEGERS_AS_TEXT,
  );
  const byOffset = Map.groupBy(stored, (s) => Number(s.offset));
  const ids = new Set(await schemaIdsOf(avro, records, settingsOf(context, place)));
  return records.find((record) => {
    const there = byOffset.get(record.offset);
    if (record.value === null || there === undefined) return record.value !== null || there !== undefined;
    return !there.some(({ checksum: stored, dead_time: deadTime }) =>
      deadTime === null
        ? stored === checksum({ ...record, value: textOf(context, place, record.value!, ids) })
        : stored === checksum(record) && Number(deadTime) === record.time,
    );
  })?.offset;
}

/** The text that a message is stored as; of one that is a dead letter now, its bytes. */
function textOf(
  { maxEventBytes }: StoreContext,
  { avro, rawAvro }: Target,
  value: Buffer,
  ids: ReadonlySet<number>,
): Buffer {
  const { kind } = formOf(value, maxEventBytes, rawAvro);
  if (kind === 'json' || kind === 'dead') return value;
  const text =
    kind === 'confluent'
      ? avro.confluent(value, maxEventBytes, ids)
      : kind === 'single_object'
        ? avro.singleObject(value, maxEventBytes)
        : avro.raw(value, maxEventBytes);
  return 'reason' in text ? value : text;
}

async function ledgerEnd(
  clickhouse: Reader,
  where: { topic: string; partition: number },
): ReturnType<Store['ledgerEnd']> {
  type Row = {
    incarnation: number;
    last: string;
    period: number;
    consumer_group: string;
    end_offset: string | null;
    end_record_time: string;
    end_checksum: number | null;
    closes: boolean;
  };
  const [row] = await select<Row>(clickhouse, statements.ledgerEnd, where, INTEGERS_AS_TEXT);
  if (row === undefined) return undefined;
  return {
    incarnation: row.incarnation,
    last: Number(row.last),
    period: row.period,
    group: row.consumer_group,
    record:
      row.end_offset === null || row.end_checksum === null
        ? undefined
        : { offset: Number(row.end_offset), time: Number(row.end_record_time), checksum: row.end_checksum },
    isClosed: row.closes,
  };
}
