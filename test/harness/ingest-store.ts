import type { ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { createRegistry, type Registry } from '../../common/metrics.ts';
import type { SourceName } from '../../common/sources.ts';
import { createLedger } from '../../services/ingest/store/ledger.ts';
import type { RecordMark, Store, Stored } from '../../services/ingest/delivery/ports.ts';
import { createRegister } from '../../services/ingest/store/register.ts';
import { RULES_VERSION, type Rules } from '../../services/ingest/evaluate/evaluate.ts';
import { createIngestMetrics } from '../../services/ingest/metrics.ts';
import type { Record } from '../../services/ingest/evaluate/record.ts';
import { createShardOf, ofPartition } from '../../services/ingest/store/shard.ts';
import { createStore } from '../../services/ingest/store/store.ts';
import { testDecoder } from './avro.ts';

interface TestStoreOptions {
  readonly source: SourceName;
  /** the name of the source by default */
  readonly topic?: string;
  readonly partition?: number;
  readonly group?: string;
  readonly retentionDays?: number;
  readonly maxEventBytes?: number;
  readonly registry?: Registry;
}

interface TestBatch {
  readonly incarnation?: number;
  /** offset of the first record by default */
  readonly first?: number;
  readonly evaluatedAt?: number;
  /** unix seconds */
  readonly period?: number;
  readonly records: readonly Record[];
}

/** The tables of one partition as ingest writes them. */
export interface TestStore extends Store {
  rulesAt(evaluatedAt: number, period?: number): Rules;
  /** Inserts a batch under its own token, without its row in the ledger. */
  insertBatch(batch: TestBatch): Promise<Stored>;
  /** Inserts a batch and writes its row in the ledger. */
  writeBatch(batch: TestBatch): Promise<void>;
}

export function openTestStore(
  clickhouse: ClickHouse,
  {
    source,
    topic = source,
    partition = 0,
    group = 'test',
    retentionDays = 90,
    maxEventBytes = 8 * 1024 * 1024,
    registry = createRegistry(),
  }: TestStoreOptions,
): TestStore {
  const shardOf = createShardOf(clickhouse);
  const placed = ofPartition(clickhouse, shardOf, topic, partition);
  const store = createStore({
    clickhouse: placed,
    group,
    retentionDays,
    maxEventBytes,
    clock: Date.now,
    metrics: createIngestMetrics(registry),
    shard: () => shardOf(topic, partition),
    register: createRegister(clickhouse, Date.now, () => {}),
    ledger: createLedger(placed),
    takeoverRead: (read) => read(),
    source,
    topic,
    partition,
    rawAvro: false,
    avro: testDecoder(source),
  });
  const rulesAt = (evaluatedAt: number, period = 0): Rules => ({
    version: RULES_VERSION,
    evaluatedAt,
    retentionDays,
    maxEventBytes,
    rawAvro: false,
    schemaIds: [],
    period,
  });

  const intentOf = ({ incarnation = 0, first, evaluatedAt = Date.now(), period, records }: TestBatch) => ({
    incarnation,
    first: first ?? records[0]!.offset,
    last: records.at(-1)!.offset,
    rules: rulesAt(evaluatedAt, period),
  });

  return { ...store, rulesAt, insertBatch: (batch) => insert(intentOf(batch), batch.records), writeBatch };

  async function insert(intent: ReturnType<typeof intentOf>, records: readonly Record[]): Promise<Stored> {
    const stored = await store.insert({ ...intent, records }, new Set(), 0, async () => undefined);
    if (typeof stored === 'string') throw new Error(stored);
    return stored;
  }

  async function writeBatch(batch: TestBatch): Promise<void> {
    const intent = intentOf(batch);
    const stored = await insert(intent, batch.records);
    const size = intent.last - intent.first + 1;
    const nullValues = batch.records.filter((r) => r.value === null).length;
    await store.writeLedger({
      ...intent,
      stored,
      nullValues,
      noRecords: size - stored.rows - stored.deadLetters - nullValues,
      gap: 0,
      begin: markOf(batch.records[0]!),
      end: markOf(batch.records.at(-1)!),
      closes: false,
    });
  }
}

function markOf({ offset, time }: Record): RecordMark {
  return { offset, time, checksum: 0 };
}
