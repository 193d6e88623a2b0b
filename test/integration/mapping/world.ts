import { rows, type ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import { sourceOf, type SourceName } from '../../../common/sources.ts';
import { DEAD_LETTER_COLUMNS } from '../../../services/ingest/evaluate/evaluate.ts';
import { rawInsert } from '../../../services/ingest/evaluate/raw-rows.ts';
import {
  brief,
  evaluated,
  expectedOutcomes,
  splitBatch,
  type Content,
  type Outcomes,
} from '../../evaluate/outcomes.ts';

export interface World {
  /** Evaluates the messages as one batch of a topic of its own, inserts what comes of them, and reads it back. */
  store(source: SourceName, contents: readonly Content[]): Promise<Stored>;
}

export interface Stored {
  readonly actual: Outcomes;
  readonly expected: Outcomes;
}

/** The columns of a batch that rows and dead letters have, as outcomes.ts compares them. */
const BATCH =
  'kafka_topic, kafka_incarnation, kafka_partition, batch_last, toUnixTimestamp64Milli(evaluated_at) AS evaluated_at, rules';

const SETTINGS = { async_insert: 0, max_insert_block_size: 10_000_000, max_partitions_per_insert_block: 0 } as const;

export function createWorld(clickhouse: ClickHouse): World {
  let topics = 0;

  return {
    async store(source, contents) {
      const topic = `${source}.${++topics}`;
      const { rows: evaluatedRows, deadLetters } = await evaluated(source, topic, contents);
      if (evaluatedRows.order.length > 0)
        await clickhouse.insertRows({ ...rawInsert([evaluatedRows]), settings: SETTINGS });
      if (deadLetters.length > 0)
        await clickhouse.insertRows({
          table: 'dead_letters',
          columns: DEAD_LETTER_COLUMNS,
          pieces: deadLetters,
          settings: SETTINGS,
        });
      return { actual: await read(source, topic), expected: expectedOutcomes(source, topic, contents) };
    },
  };

  async function read(source: SourceName, topic: string): Promise<Outcomes> {
    const outcomes: Outcomes = new Map();
    type RawRow = { offset: string; value: string; refs?: string[] };
    const stored = await select<RawRow>(
      `SELECT kafka_offset AS offset, project, id, toUnixTimestamp64Micro(timestamp) AS timestamp, ${sourceOf(source)
        .columns.flatMap(({ names }) => names)
        .join(', ')}, lower(hex(message)) AS value,
         ${BATCH}, toUnixTimestamp(period) AS period
       FROM ${source} WHERE kafka_topic = {topic:String} ORDER BY kafka_offset`,
      topic,
    );
    for (const { offset, value, ...row } of stored) {
      if (outcomes.has(Number(offset))) throw new Error(`offset ${offset} is stored twice`);
      outcomes.set(Number(offset), {
        ...splitBatch(row.refs === undefined ? row : { ...row, refs: row.refs.toSorted() }),
        kept: { value: brief(value) },
      });
    }
    type Letter = {
      offset: string;
      reason: string;
      value: string;
      key: string | null;
      headers: [string, string | null][];
      record_time: string;
    };
    const letters = await select<Letter>(
      `SELECT kafka_offset AS offset, reason, lower(hex(value)) AS value, lower(hex(key)) AS key, arrayMap(h -> (h.1, lower(hex(h.2))), headers) AS headers, record_time, ${BATCH}
       FROM dead_letters WHERE kafka_topic = {topic:String} AND source = {source:String} ORDER BY kafka_offset`,
      topic,
      source,
    );
    for (const { offset, reason, value, ...columns } of letters) {
      if (outcomes.has(Number(offset))) throw new Error(`offset ${offset} is there twice`);
      const { row: rest, batch } = splitBatch(columns);
      outcomes.set(Number(offset), { reason, kept: { ...rest, value: brief(value) }, batch });
    }
    return outcomes;
  }

  async function select<T>(sql: string, topic: string, source?: SourceName): Promise<T[]> {
    return rows<T>(
      await clickhouse.read({
        sql,
        params: { topic, ...(source !== undefined && { source }) },
        format: 'JSONEachRow',
        settings: { output_format_json_quote_64bit_integers: 1, output_format_json_named_tuples_as_objects: 0 },
      }),
    );
  }
}
