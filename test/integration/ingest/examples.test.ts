import { readdirSync, readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { rows } from '../../../common/clickhouse/clickhouse.ts';
import { sources, type SourceName } from '../../../common/sources.ts';
import { evaluateBatch, RULES_VERSION } from '../../../services/ingest/evaluate/evaluate.ts';
import { rawInsert } from '../../../services/ingest/evaluate/raw-rows.ts';
import { testDecoder } from '../../harness/avro.ts';
import { openTestClickHouse, type TestClickHouse } from '../../harness/clickhouse.ts';

// The registry of sources × every example of each source: evaluation makes the row that a plain reading of the example
// says.

const EXAMPLES = new URL('../../../schemas/examples/', import.meta.url);
const RECORD_TIME = Date.parse('2026-10-01T00:00:00Z');
const RULES = {
  version: RULES_VERSION,
  evaluatedAt: RECORD_TIME,
  retentionDays: 3650,
  maxEventBytes: 8 * 1024 * 1024,
  rawAvro: false,
  schemaIds: [],
  period: 0,
} as const;
const CASES = ['all-null', 'largest', 'self-hosted', 'typical', 'unicode'];

type Json = { readonly [key: string]: unknown };
const object = (value: unknown): Json => {
  const first: unknown = Array.isArray(value) ? value[0] : value;
  return typeof first === 'object' && first !== null ? (first as Json) : {};
};
const text = (value: unknown): string | null => (typeof value === 'string' ? value : null);
const textOrNumber = (value: unknown): string | null => (typeof value === 'number' ? String(value) : text(value));

/** Where the project's reference stands. */
const projectOf: Readonly<Record<SourceName, (event: Json) => unknown>> = {
  edge_logs: (e) => e['project'],
  postgres_logs: (e) => e['project'],
  function_edge_logs: (e) => object(e['metadata'])['project_ref'],
  function_logs: (e) => object(e['metadata'])['project_ref'],
  auth_logs: (e) => e['project'],
  realtime_logs: (e) => object(e['metadata'])['project'],
  storage_logs: (e) => object(e['metadata'])['project'],
  postgrest_logs: (e) => e['project'],
  pgbouncer_logs: (e) => e['project'],
};

/** The typed columns of a source, read plainly. */
function hotColumns(source: SourceName, event: Json): Json {
  const metadata = object(event['metadata']);
  const response = object(metadata['response']);
  const status =
    response['status_code'] === undefined || response['status_code'] === null ? null : Number(response['status_code']);
  if (source === 'edge_logs') {
    const request = object(metadata['request']);
    const path = text(request['path']);
    const marks = ['/rest', '/storage', '/auth', '/realtime'];
    const windows = new Set(
      (text(request['url']) ?? '')
        .split(/[^a-z]/)
        .flatMap((run) => Array.from({ length: Math.max(0, run.length - 19) }, (_, i) => run.slice(i, i + 20))),
    );
    return {
      url: text(request['url']),
      host: text(request['host']),
      path,
      method: text(request['method']),
      status_code: status,
      families: marks.reduce((bits, mark, i) => bits + (path?.includes(mark) === true ? 2 ** i : 0), 0),
      refs: [...windows].sort(),
    };
  }
  if (source === 'function_edge_logs') {
    const milliseconds = metadata['execution_time_ms'];
    return {
      function_id: textOrNumber(metadata['function_id']) ?? '',
      is_invocation: Object.keys(response).length > 0,
      status_code: status,
      execution_time_ms: milliseconds === undefined || milliseconds === null ? null : Number(milliseconds),
    };
  }
  return {
    level:
      source === 'postgres_logs' ? text(object(metadata['parsed'])['error_severity']) : textOrNumber(metadata['level']),
  };
}

/** The notations that the examples use: microseconds, milliseconds, RFC 3339, absent. */
function microsOf(event: Json): string {
  const timestamp = event['timestamp'];
  if (timestamp === undefined || timestamp === null) return String(RECORD_TIME * 1000);
  if (typeof timestamp === 'string' && !/^\d+$/.test(timestamp)) {
    const [, seconds, fraction = '', zone] = /^(.{19})(?:\.(\d*))?(.*)$/.exec(timestamp)!;
    return `${Date.parse(`${seconds}${zone === '' ? 'Z' : zone}`) / 1000}${fraction.padEnd(6, '0').slice(0, 6)}`;
  }
  const digits = textOrNumber(timestamp)!;
  return digits.length === 13 ? `${digits}000` : digits.length === 10 ? `${digits}000000` : digits.slice(0, 16);
}

describe('evaluation makes the row that the example says', () => {
  let engine: TestClickHouse;
  beforeAll(async () => {
    engine = await openTestClickHouse();
  });
  afterAll(async () => engine.close());

  test.each(sources.map((s) => s.name))('%s', async (source) => {
    expect(
      readdirSync(new URL(`${source}/`, EXAMPLES))
        .map((f) => f.replace('.json', ''))
        .sort(),
    ).toEqual(CASES);
    for (const [offset, name] of CASES.entries()) {
      const json = readFileSync(new URL(`${source}/${name}.json`, EXAMPLES), 'utf8');
      const event = JSON.parse(json) as Json;
      const value = Buffer.from(json);
      const batch = await evaluateBatch(
        source,
        { topic: source, partition: 0, incarnation: 0, batchLast: offset },
        RULES,
        [{ offset, time: RECORD_TIME, key: null, value, headers: [] }],
        testDecoder(source),
      );
      await engine.clickhouse.insertRows({
        ...rawInsert([batch.rows]),
        settings: { async_insert: 0 },
      });
      const [row] = rows<Json>(
        await engine.clickhouse.read({
          sql: `SELECT * EXCEPT (timestamp), toUnixTimestamp64Micro(timestamp) AS micros FROM ${source} WHERE kafka_offset = ${offset}`,
          format: 'JSONEachRow',
          settings: { output_format_json_quote_64bit_integers: 1 },
        }),
      );
      const id = textOrNumber(event['id']);
      expect(row, `${source} ${name}: ${JSON.stringify(row)}`).toMatchObject({
        project: textOrNumber(projectOf[source](event)) ?? '',
        id: id === null || id === '' ? `${source}-0-${offset}` : id,
        micros: microsOf(event),
        message: json,
        ...(row!['refs'] === undefined ? {} : { refs_overflow: false }),
      });
      const { refs, ...hot } = row!;
      expect(
        { ...hot, ...(refs === undefined ? {} : { refs: (refs as string[]).toSorted() }) },
        `${source} ${name}`,
      ).toMatchObject(hotColumns(source, event));
    }
  });
});
