import { rows, type ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import { fromEngine, type ClickHouseError } from '../../../common/clickhouse/errors.ts';
import { loadMigrations, migrate } from '../../../common/clickhouse/migrations.ts';
import { openClickHouse } from '../../../common/clickhouse/open.ts';
import { readSettings, type Settings } from '../../../common/config/settings.ts';
import { createRegistry, type Registry } from '../../../common/metrics.ts';
import type { SourceName } from '../../../common/sources.ts';
import { evaluateBatch, RULES_VERSION } from '../../../services/ingest/evaluate/evaluate.ts';
import { lastRawInsert, type RawRows } from '../../../services/ingest/evaluate/raw-rows.ts';
import { statementFor } from '../../../services/query/statement/branches.ts';
import { BUILT_IN, readDefinitions } from '../../../services/query/definition/definition-files.ts';
import { readParams } from '../../../services/query/definition/params.ts';
import { renderBody, RESULT_FORMAT, RESULT_SETTINGS } from '../../../services/query/render/render.ts';
import type { Context } from '../../../services/rollup/period/context.ts';
import { createRollupMetrics } from '../../../services/rollup/period/metrics.ts';
import { newestPeriod } from '../../../services/rollup/period/periods.ts';
import { testDecoder } from '../../harness/avro.ts';
import { openTestClickHouse, testLogger } from '../../harness/clickhouse.ts';

/** Migrations that make rollups: a database can be filled before there are any. */
const ROLLUP_MIGRATIONS = /_(rollup_catalogue|function_invocations|api_requests)\.sql$/;

/**
 * An engine whose time the test sets, with batches as ingest writes them and endpoints as the query service runs them.
 */
export interface World {
  readonly clickhouse: ClickHouse;
  readonly context: Context;
  readonly registry: Registry;
  /** unix milliseconds; waiting moves it on */
  now: number;
  /** called with the clock moved on, whenever the service waits */
  onWait: () => Promise<void>;
  /**
   * Writes one batch: `insert` its rows, `record` it in the ledger. Evaluated now, in the newest period, unless said
   * otherwise.
   */
  send(source: SourceName, events: readonly string[], options?: BatchOptions): Promise<Batch>;
  announce(source: SourceName, events: readonly string[], options?: BatchOptions): Batch;
  ask(endpoint: string, params: Record<string, string>, now?: number): Promise<Record<string, unknown>[]>;
  /**
   * what an endpoint would read, by the engine's own account: parts, granules (marks) and rows of each table that are
   * left after its indexes
   */
  explain(
    endpoint: string,
    params: Record<string, string>,
    now?: number,
  ): Promise<{ table: string; parts: number; rows: number; marks: number }[]>;
  /**
   * how many parts of each table an endpoint goes on to look at, by the condition on their partition alone, before
   * anything of them is opened
   */
  explainPartitions(
    endpoint: string,
    params: Record<string, string>,
    now?: number,
  ): Promise<{ table: string; parts: number; of: number }[]>;
  select<T>(sql: string): Promise<T[]>;
  /**
   * Empties the database and sets the clock: the world as it was opened, in a fraction of the time. With rollups made
   * or not.
   */
  reset(options: { now: number; migrated?: boolean }): Promise<void>;
  /** Makes the rollups, as an upgrade does: on top of the raw tables that are there. */
  makeRollups(): Promise<void>;
  /** Closes the engine and opens it again. */
  restart(): Promise<void>;
  close(): Promise<void>;
}

export interface BatchOptions {
  /** unix milliseconds */
  readonly evaluatedAt?: number;
  readonly partition?: number;
  /** unix seconds: the least period of its rows */
  readonly period?: number;
}

export interface Batch {
  readonly partition: number;
  readonly first: number;
  readonly last: number;
  /**
   * Under the batch's token: repeated, it counts once. `without`: offsets that are left out, under a token of its own.
   */
  insert(without?: ReadonlySet<number>): Promise<void>;
  record(): Promise<void>;
}

/** What ClickHouse reports, at every read, of a block whose bytes have changed on the disk. */
export const unreadable = (): ClickHouseError =>
  fromEngine("Code: 40. DB::Exception: Checksum doesn't match: corrupted data. (CHECKSUM_DOESNT_MATCH)", false)!;

const BASE_MICROS = 1000;

/** No test is about retention as ingest judges it: events may be ten years old. */
const RULES = {
  version: RULES_VERSION,
  retentionDays: 3_650,
  maxEventBytes: 8 * 1024 * 1024,
  rawAvro: false,
  schemaIds: [],
} as const;

/** A step of a plan as the engine tells it; of a reading, its indexes in the order in which they are used. */
interface PlanNode {
  readonly Description?: string;
  readonly Plans?: readonly PlanNode[];
  readonly Indexes?: readonly {
    readonly Type: string;
    readonly 'Initial Parts': number;
    readonly 'Selected Parts': number;
  }[];
}

export async function openWorld({
  now,
  migrated = true,
  settings: given = {},
}: {
  now: number;
  migrated?: boolean;
  settings?: Partial<Record<keyof Settings, string>>;
}): Promise<World> {
  const settings = readSettings({ ROLLUP_BUILD_PERCENT: '100', ...given });
  const engine = await openTestClickHouse({ migrated: false });
  let { clickhouse } = engine;
  await migrate(
    clickhouse,
    testLogger,
    loadMigrations().filter((m) => migrated || !ROLLUP_MIGRATIONS.test(m.name)),
  );
  const registry = createRegistry();
  /** Where the rollups have not been made, there are no periods yet. */
  const leastPeriodNow = async (): Promise<number> => {
    const made = await world.select(
      "SELECT 1 FROM system.tables WHERE database = currentDatabase() AND name = 'rollup_periods'",
    );
    return made.length > 0 ? await newestPeriod({ clickhouse }) : 0;
  };
  const offsets = new Map<string, number>();
  const definitions = readDefinitions([BUILT_IN]);

  const call = (endpoint: string, params: Record<string, string>, at: number) => {
    const definition = definitions.find(endpoint)!;
    const read = readParams(definition, new URLSearchParams(params));
    if (!('params' in read)) throw new Error(JSON.stringify(read.mistakes));
    return {
      definition,
      params: { ...read.params, now: new Date(at).toISOString().replace('T', ' ').replace('Z', '000') },
    };
  };

  const world: World = {
    get clickhouse() {
      return clickhouse;
    },
    registry,
    now,
    onWait: () => Promise.resolve(),
    context: {
      get clickhouse() {
        return clickhouse;
      },
      settings,
      logger: testLogger,
      metrics: createRollupMetrics(registry),
      clock: () => world.now,
      engineClock: () => Promise.resolve(world.now),
      wait: async (ms) => {
        world.now += Math.ceil(ms);
        await world.onWait();
      },
    },

    announce(source, events, { evaluatedAt = world.now, partition = 0, period: leastPeriod } = {}) {
      const key = `${source}:${partition}`;
      const first = offsets.get(key) ?? 0;
      const last = first + events.length - 1;
      offsets.set(key, last + 1);
      const records = events.map((json, i) => ({
        offset: first + i,
        time: -1,
        key: null,
        value: Buffer.from(json),
        headers: [],
      }));
      const place = { topic: source, partition, incarnation: 0, batchLast: last };
      let least = leastPeriod;
      let minTimestamp: number | undefined;
      const evaluate = async (without?: ReadonlySet<number>): Promise<RawRows> => {
        least ??= await leastPeriodNow();
        const rules = { ...RULES, evaluatedAt, period: least };
        const batch = await evaluateBatch(source, place, rules, records, testDecoder(source), without);
        if (batch.deadOffsets.length > 0) throw new Error(`not rows: ${JSON.stringify([...batch.reasons])}`);
        if (without === undefined) minTimestamp = batch.minTimestamp;
        return batch.rows;
      };
      return {
        partition,
        first,
        last,
        insert: async (without) => {
          const token = `${source}:0:${partition}:${last}:${evaluatedAt}`;
          const suffix = without === undefined ? '' : `:without ${[...without].join(' ')}`;
          await clickhouse.insertRows({
            ...lastRawInsert([await evaluate(without)]),
            settings: { insert_deduplication_token: `${token}${suffix}` },
          });
        },
        record: async () => {
          if (minTimestamp === undefined) await evaluate();
          await clickhouse.execute({
            sql: `INSERT INTO batches (topic, partition, first, last, source, stored, evaluated_at, period, min_timestamp)
              SELECT {topic:String}, {partition:UInt32}, {first:UInt64}, {last:UInt64}, {topic:String}, {stored:UInt32}, fromUnixTimestamp64Milli({evaluated_at:Int64}, 'UTC'), toDateTime({period:UInt32}, 'UTC'), fromUnixTimestamp64Micro({min_timestamp:Int64}, 'UTC')`,
            params: {
              topic: source,
              partition,
              first,
              last,
              stored: events.length,
              evaluated_at: evaluatedAt,
              period: least!,
              min_timestamp: minTimestamp!,
            },
            settings: { async_insert: 0, insert_deduplicate: 0 },
          });
        },
      };
    },

    async send(source, events, options) {
      const batch = world.announce(source, events, options);
      await batch.insert();
      await batch.record();
      return batch;
    },

    async ask(endpoint, given, at = world.now) {
      const { definition, params } = call(endpoint, given, at);
      const result = await clickhouse.read({
        sql: statementFor(definition.fragments, params),
        params,
        format: RESULT_FORMAT,
        settings: { ...RESULT_SETTINGS, limit: definition.maxRows + 1 },
        fewRows: definition.fewRows,
      });
      return (JSON.parse(renderBody(definition, result.body).body.toString()) as { result: Record<string, unknown>[] })
        .result;
    },

    async explain(endpoint, given, at = world.now) {
      const { definition, params } = call(endpoint, given, at);
      const result = await clickhouse.read({
        sql: `EXPLAIN ESTIMATE ${statementFor(definition.fragments, params)}`,
        params,
        format: 'JSONEachRow',
        fewRows: definition.fewRows,
      });
      return rows<{ table: string; parts: number; rows: number; marks: number }>(result).filter((row) => row.rows > 0);
    },

    async explainPartitions(endpoint, given, at = world.now) {
      const { definition, params } = call(endpoint, given, at);
      const { body } = await clickhouse.read({
        sql: `EXPLAIN json = 1, indexes = 1, description = 1 ${statementFor(definition.fragments, params)}`,
        params,
        format: 'TSVRaw',
        fewRows: definition.fewRows,
      });
      const readings = (node: PlanNode): { table: string; parts: number; of: number }[] => {
        const first = node.Indexes?.[0];
        const own =
          first === undefined
            ? []
            : [
                {
                  table: node.Description!.replace(/^.*\./, ''),
                  parts: first[/^min-?max$/i.test(first.Type) ? 'Selected Parts' : 'Initial Parts'],
                  of: first['Initial Parts'],
                },
              ];
        return [...own, ...(node.Plans ?? []).flatMap(readings)];
      };
      return (JSON.parse(body.toString('utf8')) as { Plan: PlanNode }[]).flatMap(({ Plan }) => readings(Plan));
    },

    async select<T>(sql: string) {
      return rows<T>(await clickhouse.read({ sql, format: 'JSONEachRow' }));
    },

    async reset({ now: at, migrated: wanted = true }) {
      const tables = await world.select<{ name: string; engine: string }>(
        'SELECT name, engine FROM system.tables WHERE database = currentDatabase() AND NOT is_temporary',
      );
      const ofRollups = (name: string): boolean => /^(rollup|function_invocations|api_requests)/.test(name);
      // inner first: a view's target goes after the view
      const isView = ({ engine: kind }: { engine: string }): boolean => kind.endsWith('View');
      for (const { name } of tables.filter((t) => isView(t) && ofRollups(t.name)))
        await clickhouse.execute({ sql: `DROP VIEW IF EXISTS ${name} SYNC` });
      for (const table of tables.filter((t) => t.engine.endsWith('MergeTree'))) {
        if (ofRollups(table.name)) await clickhouse.execute({ sql: `DROP TABLE IF EXISTS ${table.name} SYNC` });
        else if (table.name !== 'migrations') await clickhouse.execute({ sql: `TRUNCATE TABLE ${table.name}` });
      }
      // emptied and filled again: a mutation of one row took a second, and only waited
      const others = await world.select<Record<string, unknown>>(
        `SELECT version, name, checksum, run, state, at FROM migrations WHERE NOT match(name, '${ROLLUP_MIGRATIONS.source.replaceAll('\\', '\\\\')}') AND version <= ${loadMigrations().length} ORDER BY at`,
      );
      await clickhouse.execute({ sql: 'TRUNCATE TABLE migrations' });
      const columns = Object.keys(others[0]!);
      await clickhouse.execute({
        sql: `INSERT INTO migrations (${columns.join(', ')}) VALUES ${others.map((row) => `(${columns.map((c) => valueOf(row[c])).join(', ')})`).join(', ')}`,
        settings: { async_insert: 0, insert_deduplicate: 0 },
      });
      if (wanted) await migrate(clickhouse, testLogger, loadMigrations());
      offsets.clear();
      registry.resetMetrics();
      world.now = at;
      world.onWait = () => Promise.resolve();
    },

    async makeRollups() {
      await migrate(clickhouse, testLogger, loadMigrations());
    },

    async restart() {
      await clickhouse.close();
      clickhouse = await openClickHouse(
        { ...settings, DATA_DIR: engine.env.DATA_DIR, CLICKHOUSE_URL: engine.env.CLICKHOUSE_URL },
        testLogger,
      );
    },

    async close() {
      // an embedded engine that was opened again is closed twice: the second time there is nothing left
      await clickhouse.close();
      await engine.close();
    },
  };
  return world;
}

function valueOf(value: unknown): string {
  if (value === null || value === undefined) return 'NULL';
  if (typeof value === 'string') return `'${value.replace(/[\\']/g, (c) => `\\${c}`)}'`;
  return JSON.stringify(value);
}

/** An edge event as small as it can be. */
export function edgeEvent(
  at: number,
  url: string,
  { project = 'someproject', path = new URL(url, 'https://x').pathname }: { project?: string; path?: string } = {},
): string {
  return JSON.stringify({
    id: `e${at}`,
    timestamp: at * BASE_MICROS,
    project,
    event_message: '',
    metadata: { request: { url, path } },
  });
}

/** An invocation as small as it can be; `ms` null = no execution time. */
export function invocationEvent(
  at: number,
  project: string,
  functionId: string,
  { status = 200, ms = 5 }: { status?: number | null; ms?: number | null } = {},
): string {
  return JSON.stringify({
    timestamp: at * BASE_MICROS,
    metadata: {
      project_ref: project,
      function_id: functionId,
      execution_time_ms: ms,
      response: { status_code: status },
    },
  });
}
