import { openEmbedded } from '../common/clickhouse/embedded/embedded.ts';
import { migrate } from '../common/clickhouse/migrations.ts';
import { createLogger } from '../common/logger.ts';
import { sources, type SourceName } from '../common/sources.ts';
import { createTraffic } from '../demo/traffic.ts';
import { createAvroDecoder } from '../services/ingest/avro/decoder.ts';
import { readKnownSchemas } from '../services/ingest/avro/schemas.ts';
import { evaluateBatch, RULES_VERSION, type Rules } from '../services/ingest/evaluate/evaluate.ts';
import { lastRawInsert } from '../services/ingest/evaluate/raw-rows.ts';
import type { Record as KafkaRecord } from '../services/ingest/evaluate/record.ts';
import { schemaOf, singleObject } from '../test/harness/avro.ts';
import { temporaryFolder } from '../test/harness/clickhouse.ts';
import { ofRuns, report, type Measurement } from './report.ts';
import { cpuMs } from './service.ts';

const SEED = 7;
const EVENTS = 2_000;
const ROUNDS = 12;
/** so many rounds before what is measured */
const WARM_UP = 4;
const FEW = [1, 9] as const;
/** As the store inserts: one block. */
const SETTINGS = {
  async_insert: 0,
  max_insert_block_size: 10_000_000,
  min_insert_block_size_rows: 0,
  min_insert_block_size_bytes: 0,
  max_insert_threads: 1,
  max_threads: 1,
  deduplicate_blocks_in_dependent_materialized_views: 1,
  max_partitions_per_insert_block: 0,
} as const;

/**
 * CPU of evaluation, an event in JSON and in Avro; and of one insert of few events with its rollup views, of every
 * source. CPU of the whole process, embedded engine.
 */
export async function benchEvaluate(): Promise<void> {
  const now = Date.now();
  const rules: Rules = {
    version: RULES_VERSION,
    evaluatedAt: now,
    retentionDays: 90,
    maxEventBytes: 8 * 1024 * 1024,
    rawAvro: false,
    schemaIds: [],
    period: 0,
  };
  const schemas = readKnownSchemas(undefined);
  const decoderOf = (source: SourceName) => createAvroDecoder(source, schemas);
  const valuesOf = (source: SourceName, count: number): Buffer[] => {
    const traffic = createTraffic({ seed: SEED, projects: 50, functionsPerProject: 3, shares: { [source]: 1 } });
    return Array.from({ length: count }, () => Buffer.from(traffic.next(now * 1000).json));
  };
  const recordsOf = (values: readonly Buffer[], first = 0): KafkaRecord[] =>
    values.map((value, i) => ({ offset: first + i, time: now, key: null, headers: [], value }));
  const placeOf = (topic: string, batchLast: number) => ({ topic, partition: 0, incarnation: 0, batchLast });
  const measurements: Measurement[] = [];

  const texts = valuesOf('edge_logs', EVENTS);
  const schema = schemaOf('edge_logs');
  const forms = {
    JSON: recordsOf(texts),
    Avro: recordsOf(texts.map((text) => singleObject(schema, JSON.parse(text.toString())))),
  };
  const avro = decoderOf('edge_logs');
  const micros = new Map<string, number[]>();
  for (let round = 0; round < ROUNDS; round++) {
    for (const [form, records] of Object.entries(forms)) {
      const ms = await cpuOf(() => evaluateBatch('edge_logs', placeOf('edge_logs', EVENTS - 1), rules, records, avro));
      if (round >= WARM_UP) micros.set(form, [...(micros.get(form) ?? []), (ms * 1000) / EVENTS]);
    }
  }
  for (const [form, values] of micros)
    measurements.push({ what: `an edge event in ${form}: verdict and row`, unit: 'us of CPU', ...ofRuns(values) });

  const folder = temporaryFolder();
  const logger = createLogger('error');
  const clickhouse = await openEmbedded({ dataDir: folder.path, logger });
  try {
    await migrate(clickhouse, logger);
    for (const { name } of sources) {
      const decoder = decoderOf(name);
      const insert = async (topic: string, records: readonly KafkaRecord[]): Promise<void> => {
        const last = records.at(-1)!.offset;
        const { rows } = await evaluateBatch(name, placeOf(topic, last), rules, records, decoder);
        await clickhouse.insertRows({
          ...lastRawInsert([rows]),
          settings: { ...SETTINGS, insert_deduplication_token: `${topic}:${last}` },
        });
      };
      for (const events of FEW) {
        const values = valuesOf(name, events);
        const spent: number[] = [];
        for (let round = 0; round < ROUNDS; round++) {
          const ms = await cpuOf(() => insert(`${name}-${events}`, recordsOf(values, round * events)));
          if (round >= WARM_UP) spent.push(ms);
        }
        measurements.push({
          what: `one insert of ${events} into ${name}, with its views`,
          unit: 'ms of CPU',
          ...ofRuns(spent),
        });
      }
    }
    report({ bench: 'evaluate', seed: SEED, engine: clickhouse.version, measurements });
  } finally {
    await clickhouse.close();
    folder.remove();
  }
}

async function cpuOf(work: () => unknown): Promise<number> {
  const from = process.cpuUsage();
  await work();
  return cpuMs(from);
}
