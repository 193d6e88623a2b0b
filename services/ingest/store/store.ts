import { fresh, freshly, select, type ClickHouse, type Reader } from '../../../common/clickhouse/clickhouse.ts';
import { ClickHouseError } from '../../../common/clickhouse/errors.ts';
import type { Clock } from '../../../common/clock.ts';
import type { SourceName } from '../../../common/sources.ts';
import type { AvroDecoder } from '../avro/decoder.ts';
import { tokenOf } from '../delivery/intent.ts';
import { insertAllowed, type Contribution } from '../delivery/joint.ts';
import type { Ledger } from './ledger.ts';
import type { LedgerEnd, OrphanRows, RecordMark, Store, StoredAs } from '../delivery/ports.ts';
import type { RegisterReader } from './register.ts';
import { DEAD_LETTER_COLUMNS, evaluateBatch, rulesFor, schemaIdsOf, textOf } from '../evaluate/evaluate.ts';
import { lastRawInsert, type RawRows } from '../evaluate/raw-rows.ts';
import { insertOf, recycle, type RowColumns } from '../evaluate/row-binary.ts';
import type { IngestMetrics } from '../metrics.ts';
import { assertShard } from './shard.ts';
import { CHECKED_BYTES, checksum, type Record } from '../evaluate/record.ts';
import { statements } from './statements.ts';

interface StoreOptions {
  /** runs each statement on the partition's shard (shard.ts) */
  readonly clickhouse: ClickHouse;
  readonly shard: () => Promise<ClickHouse>;
  readonly group: string;
  readonly retentionDays: number;
  readonly maxEventBytes: number;
  readonly register: RegisterReader;
  readonly ledger: Ledger;
  /** reads of takeovers: few at a time on each shard */
  readonly takeoverRead: <T>(read: () => Promise<T>) => Promise<T>;
  readonly metrics: IngestMetrics;
  readonly clock: Clock;
  readonly source: SourceName;
  readonly topic: string;
  readonly partition: number;
  readonly rawAvro: boolean;
  readonly avro: AvroDecoder;
}

/** The tables of one partition: see Store for what each function promises. */
export function createStore(options: StoreOptions): Store {
  const { clickhouse, shard, register, group, ledger, takeoverRead, metrics } = options;
  const { source, topic, partition, avro } = options;
  const where = { topic, partition };
  // in a cluster, takeovers and recoveries must see every acknowledged row, whichever node has it
  const reader = fresh(clickhouse, ['batches', 'dead_letters', source]);
  return {
    async ledgerEnd() {
      type Row = Omit<LedgerEnd, 'record'> & { offset: number | null; time: number; checksum: number | null };
      const [row] = await takeoverRead(() => select<Row>(reader, statements.ledgerEnd, where));
      if (row === undefined) return undefined;
      const { offset, time, checksum, ...end } = row;
      return { ...end, record: offset === null || checksum === null ? undefined : { offset, time, checksum } };
    },

    marks: (incarnation, before) =>
      select<RecordMark>(reader, statements.ledgerMarks, { ...where, incarnation, before }),

    async orphans(incarnation, from, period) {
      type Row = Omit<OrphanRows, 'minTimestamp'> & { minTimestamp: number | null };
      const params = { ...where, source, incarnation, from, period };
      const found = await takeoverRead(() => select<Row>(reader, statements.orphanRows, params));
      return found.map((row): OrphanRows => ({ ...row, minTimestamp: row.minTimestamp ?? undefined }));
    },

    compare: (incarnation, records) => compare(options, reader, incarnation, records),

    async register(anew) {
      const found = await register.read(topic, partition, anew);
      if (found.shard !== undefined) assertShard(topic, partition, found.shard, (await shard()).shard);
      return found;
    },

    async claim(epoch) {
      const { shard: name = '' } = await shard();
      await clickhouse.insertRows({
        ...insertOf('partition_owners', OWNER_COLUMNS, [{ ...where, epoch, group, shard: name }]),
        // of two claims of an epoch the first one counts
        settings: { insert_deduplication_token: `owner:${topic}:${partition}:${epoch}` },
      });
    },

    rulesFor: (records, evaluatedAt, period) => rulesFor(avro, records, settingsOf(options), { evaluatedAt, period }),
    endRunning: () => clickhouse.killInsert(queryIdOf(options)),
    insert: (...batch) => insert(options, ...batch),

    async requestRepair({ incarnation, first, last }, period) {
      await clickhouse.execute({
        sql: statements.requestRepairs,
        params: { ...where, source, incarnation, first, last, period },
        ...freshly([source, 'rollup_repairs']),
      });
    },

    async writeLedger(entry) {
      await ledger({ source, topic, partition, group, entry });
      const events = entry.stored.rows + entry.stored.deadLetters;
      metrics.events.inc({ source }, events);
      metrics.batchEvents.observe(events);
      if (entry.gap > 0) metrics.gone.inc({ topic }, entry.gap);
    },
  };
}

/** The columns of partition_owners. */
const OWNER_COLUMNS: RowColumns<{ topic: string; partition: number; epoch: number; group: string; shard: string }> = {
  topic: (out, { topic }) => out.text(topic),
  partition: (out, { partition }) => out.uint32(partition),
  epoch: (out, { epoch }) => out.int64(epoch),
  consumer_group: (out, { group }) => out.text(group),
  shard: (out, { shard }) => out.text(shard),
};

/** What a verdict depends on today. */
function settingsOf({ retentionDays, maxEventBytes, rawAvro }: StoreOptions) {
  return { retentionDays, maxEventBytes, rawAvro };
}

/** One for all inserts of rows and dead letters of the partition: they are ended together. */
function queryIdOf({ topic, partition }: StoreOptions): string {
  return `ingest:${topic}:${partition}`;
}

async function insert(
  options: StoreOptions,
  ...[batch, without, attempt, fence, seat]: Parameters<Store['insert']>
): ReturnType<Store['insert']> {
  const { clickhouse, metrics, clock, source, topic, partition, avro } = options;
  const { incarnation, last: batchLast, rules, records } = batch;
  if (rules.schemaIds.length > 0) {
    const missing = records.filter((r) => !without.has(r.offset)).flatMap((r) => r.value ?? []);
    await avro.load(rules.schemaIds, missing);
  }
  const at = { topic, partition, incarnation, batchLast };
  const evaluated = await evaluateBatch(source, at, rules, records, avro, without);
  const { rowOffsets, deadOffsets, minTimestamp } = evaluated;
  const queryId = queryIdOf(options);
  const token = tokenOf(topic, partition, batch, attempt);
  const done = metrics.insertSeconds.startTimer({ source });
  if (deadOffsets.length > 0) {
    const ended = await fence();
    if (ended !== undefined) return ended;
    await clickhouse.insertRows({
      table: 'dead_letters',
      columns: DEAD_LETTER_COLUMNS,
      pieces: evaluated.deadLetters,
      settings: { insert_deduplication_token: `${token}:dead` },
      queryIds: [queryId],
    });
    recycle(evaluated.deadLetters);
  }
  const contribution: Contribution<BatchRows> = {
    rows: { queryId, token, rows: evaluated.rows },
    fence,
    insertAll: (contributions) => insertRaw(clickhouse, contributions),
  };
  if (rowOffsets.length > 0) {
    const inserted = (await seat?.insert(contribution)) ?? (await insertAllowed([contribution]))[0]!;
    if (inserted !== 'done') return inserted;
  }
  done();
  const newest = records.reduce((max, r) => Math.max(max, r.time), -1);
  if (newest >= 0) metrics.freshness.set({ source }, (clock() - newest) / 1000);
  return { rows: rowOffsets.length, deadLetters: deadOffsets.length, minTimestamp };
}

/** Raw rows of one batch. */
interface BatchRows {
  readonly queryId: string;
  readonly token: string;
  readonly rows: RawRows;
}

/**
 * Inserts raw rows as one block, under the token of the first batch. 'unfinished': a view failed, and the raw rows are
 * there.
 */
async function insertRaw(
  clickhouse: ClickHouse,
  contributions: readonly Contribution<BatchRows>[],
): Promise<'done' | 'unfinished'> {
  const batches = contributions.map(({ rows }) => rows);
  const { token } = batches[0]!;
  try {
    await clickhouse.insertRows({
      ...lastRawInsert(batches.map(({ rows }) => rows)),
      settings: { insert_deduplication_token: token },
      queryIds: batches.map(({ queryId }) => queryId),
    });
    return 'done';
  } catch (error) {
    if (error instanceof ClickHouseError && error.message.includes(': while pushing to view ')) return 'unfinished';
    throw error;
  }
}

async function compare(
  options: StoreOptions,
  reader: Reader,
  incarnation: number,
  records: readonly Record[],
): Promise<readonly StoredAs[]> {
  const { source, topic, partition, avro } = options;
  if (records.length === 0) return [];
  const [first, last] = [records[0]!.offset, records.at(-1)!.offset];
  const stored = await select<{ offset: number; checksum: number; dead_time: number | null }>(
    reader,
    statements.storedChecksums,
    { topic, partition, source, incarnation, first, last, checked_bytes: CHECKED_BYTES },
  );
  const byOffset = Map.groupBy(stored, (s) => s.offset);
  const settings = settingsOf(options);
  const ids = new Set(await schemaIdsOf(avro, records, settings));
  return records.map((record) => {
    const found = byOffset.get(record.offset);
    const { value } = record;
    if (found === undefined) return value === null ? undefined : 'nothing';
    if (value === null) return 'another';
    const text = textOf(value, avro, settings, ids);
    // what a message is stored as; of one that is a dead letter now, its bytes
    const asRow = checksum({ ...record, value: 'reason' in text ? value : text });
    const isSame = found.some(({ checksum: there, dead_time: deadTime }) =>
      deadTime === null ? there === asRow : there === checksum(record) && deadTime === record.time,
    );
    if (isSame) return 'same';
    // its schema may be gone since it became a row
    const isUnreadable = 'reason' in text && text.reason === 'unknown_schema';
    return isUnreadable && found.every((of) => of.dead_time === null) ? 'nothing' : 'another';
  });
}
