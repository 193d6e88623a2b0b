import { rows, type ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import { loadMigrations, migrate } from '../../../common/clickhouse/migrations.ts';
import { openClickHouse } from '../../../common/clickhouse/open.ts';
import { readSettings, type Settings } from '../../../common/config/settings.ts';
import { createRegistry, type Registry } from '../../../common/metrics.ts';
import type { SourceName } from '../../../common/sources.ts';
import { createIngestMetrics } from '../../../services/ingest/metrics.ts';
import type { Record as KafkaRecord } from '../../../services/ingest/record.ts';
import { createStore } from '../../../services/ingest/store.ts';
import { statementFor } from '../../../services/query/branches.ts';
import { BUILT_IN, readDefinitions } from '../../../services/query/definition.ts';
import { readParams } from '../../../services/query/params.ts';
import { renderBody, RESULT_FORMAT, RESULT_SETTINGS } from '../../../services/query/render.ts';
import { createRollupMetrics } from '../../../services/rollup/metrics.ts';
import { DEFAULT_TIMING, type Workshop } from '../../../services/rollup/workshop.ts';
import { testDecoder } from '../../harness/avro.ts';
import { openTestClickHouse, testLogger } from '../../harness/clickhouse.ts';

/** Migrations that make rollups: a database can be filled before there are any. */
export const ROLLUP_MIGRATIONS = /_(rollups|function_invocations|api_requests)\.sql$/;

/** An engine whose time the test sets, with batches as ingest writes them and endpoints as the query service runs them. */
export interface World {
  readonly clickhouse: ClickHouse;
  readonly workshop: Workshop;
  readonly registry: Registry;
  /** unix milliseconds; waiting moves it on */
  now: number;
  /** called with the clock moved on, whenever the service waits */
  onWait: () => Promise<void>;
  /** Writes one batch: `insert` its rows, `record` it in the ledger. Judged now, unless said otherwise. */
  send(source: SourceName, events: readonly string[], options?: { judgedAt?: number; partition?: number }): Promise<Batch>;
  announce(source: SourceName, events: readonly string[], options?: { judgedAt?: number; partition?: number }): Batch;
  ask(endpoint: string, params: Record<string, string>, now?: number): Promise<Record<string, unknown>[]>;
  /** what an endpoint would read, by the engine's own account: parts, granules (marks) and rows of each table that are left after its indexes */
  explain(endpoint: string, params: Record<string, string>, now?: number): Promise<{ table: string; parts: number; rows: number; marks: number }[]>;
  /** how many parts of each table an endpoint goes on to look at, by the condition on their partition alone, before anything of them is opened */
  explainPartitions(endpoint: string, params: Record<string, string>, now?: number): Promise<{ table: string; parts: number; of: number }[]>;
  select<T>(sql: string): Promise<T[]>;
  /** Empties the database and sets the clock: the world as it was opened, in a fraction of the time. With rollups made or not. */
  reset(options: { now: number; migrated?: boolean }): Promise<void>;
  /** Closes the engine and opens it again. */
  restart(): Promise<void>;
  close(): Promise<void>;
}

export interface Batch {
  readonly partition: number;
  readonly first: number;
  insert(): Promise<void>;
  record(): Promise<void>;
}

const BASE_MICROS = 1000;

/** A step of a plan as the engine tells it; of a reading, its indexes in the order in which they are used. */
interface PlanNode {
  readonly Description?: string;
  readonly Plans?: readonly PlanNode[];
  readonly Indexes?: readonly { readonly Type: string; readonly 'Initial Parts': number; readonly 'Selected Parts': number }[];
}

export async function openWorld({ now, migrated = true, settings: given = {} }: { now: number; migrated?: boolean; settings?: Partial<Record<keyof Settings, string>> }): Promise<World> {
  const settings = readSettings({ ROLLUP_BUILD_PERCENT: '100', ...given });
  const engine = await openTestClickHouse({ migrated: false });
  let { clickhouse } = engine;
  await migrate(clickhouse, testLogger, loadMigrations().filter((m) => migrated || !ROLLUP_MIGRATIONS.test(m.name)));
  const registry = createRegistry();
  const ingestMetrics = createIngestMetrics(createRegistry());
  const offsets = new Map<string, number>();
  const definitions = readDefinitions([BUILT_IN]);

  const call = (endpoint: string, params: Record<string, string>, at: number) => {
    const definition = definitions.find(endpoint)!;
    const read = readParams(definition, new URLSearchParams(params));
    if (!('params' in read)) throw new Error(JSON.stringify(read.mistakes));
    return { definition, params: { ...read.params, now: new Date(at).toISOString().replace('T', ' ').replace('Z', '000') } };
  };

  const world: World = {
    get clickhouse() { return clickhouse; },
    registry,
    now,
    onWait: () => Promise.resolve(),
    workshop: {
      get clickhouse() { return clickhouse; },
      settings,
      logger: testLogger,
      metrics: createRollupMetrics(registry),
      timing: DEFAULT_TIMING,
      clock: () => world.now,
      wait: async (ms) => {
        world.now += Math.ceil(ms);
        await world.onWait();
      },
    },

    announce(source, events, { judgedAt = world.now, partition = 0 } = {}) {
      const key = `${source}:${partition}`;
      const first = offsets.get(key) ?? 0;
      offsets.set(key, first + events.length);
      const records: KafkaRecord[] = events.map((json, i) => ({ offset: first + i, time: judgedAt, key: null, value: Buffer.from(json), headers: [] }));
      const intent = { incarnation: 0, first, last: first + events.length - 1, judgedAt };
      const store = createStore({ clickhouse, source, topic: source, partition, retentionDays: settings.RAW_RETENTION_DAYS, maxEventBytes: settings.MAX_EVENT_BYTES, avro: testDecoder(source), metrics: ingestMetrics, clock: () => world.now });
      return {
        partition, first,
        insert: async () => { await store.insert({ ...intent, records }); },
        record: () => clickhouse.execute({
          sql: `INSERT INTO batches (topic, incarnation, partition, first, last, source, stored, judged_at)
            SELECT {topic:String}, 0, {partition:UInt32}, {first:UInt64}, {last:UInt64}, {topic:String}, {stored:UInt32}, fromUnixTimestamp64Milli({judged_at:Int64}, 'UTC')`,
          params: { topic: source, partition, first, last: intent.last, stored: records.length, judged_at: judgedAt },
        }),
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
      const result = await clickhouse.read({ sql: statementFor(definition.parts, params), params, format: RESULT_FORMAT, settings: { ...RESULT_SETTINGS, limit: definition.maxRows + 1 }, fewRows: definition.fewRows });
      return (JSON.parse((await renderBody(definition, result.body)).body.toString()) as { result: Record<string, unknown>[] }).result;
    },

    async explain(endpoint, given, at = world.now) {
      const { definition, params } = call(endpoint, given, at);
      const result = await clickhouse.read({ sql: `EXPLAIN ESTIMATE ${statementFor(definition.parts, params)}`, params, format: 'JSONEachRow', fewRows: definition.fewRows });
      return rows<{ table: string; parts: number; rows: number; marks: number }>(result).filter((row) => row.rows > 0);
    },

    async explainPartitions(endpoint, given, at = world.now) {
      const { definition, params } = call(endpoint, given, at);
      const { body } = await clickhouse.read({ sql: `EXPLAIN json = 1, indexes = 1, description = 1 ${statementFor(definition.parts, params)}`, params, format: 'TSVRaw', fewRows: definition.fewRows });
      const readings = (node: PlanNode): { table: string; parts: number; of: number }[] => {
        const first = node.Indexes?.[0];
        const own = first === undefined ? [] : [{ table: node.Description!.replace(/^.*\./, ''), parts: first[/^min-?max$/i.test(first.Type) ? 'Selected Parts' : 'Initial Parts'], of: first['Initial Parts'] }];
        return [...own, ...(node.Plans ?? []).flatMap(readings)];
      };
      return (JSON.parse(body.toString('utf8')) as { Plan: PlanNode }[]).flatMap(({ Plan }) => readings(Plan));
    },

    async select<T>(sql: string) {
      return rows<T>(await clickhouse.read({ sql, format: 'JSONEachRow' }));
    },

    async reset({ now: at, migrated: withRollups = true }) {
      const tables = await world.select<{ name: string; engine: string }>("SELECT name, engine FROM system.tables WHERE database = currentDatabase() AND NOT is_temporary");
      const ofRollups = (name: string): boolean => /^(rollup|function_invocations|api_request)/.test(name);
      // inner first: a view's target goes after the view
      const isView = ({ engine: kind }: { engine: string }): boolean => kind.endsWith('View');
      for (const { name } of tables.filter((t) => isView(t) && ofRollups(t.name))) await clickhouse.execute({ sql: `DROP VIEW IF EXISTS ${name} SYNC` });
      for (const table of tables.filter((t) => t.engine.endsWith('MergeTree'))) {
        if (ofRollups(table.name)) await clickhouse.execute({ sql: `DROP TABLE IF EXISTS ${table.name} SYNC` });
        else if (table.name !== 'migrations') await clickhouse.execute({ sql: `TRUNCATE TABLE ${table.name}` });
      }
      await clickhouse.execute({ sql: `ALTER TABLE migrations DELETE WHERE match(name, '${ROLLUP_MIGRATIONS.source.replaceAll('\\', '\\\\')}') OR version > ${loadMigrations().length}`, settings: { mutations_sync: 1 } });
      if (withRollups) await migrate(clickhouse, testLogger, loadMigrations());
      registry.resetMetrics();
      world.now = at;
      world.onWait = () => Promise.resolve();
    },

    async restart() {
      await clickhouse.close();
      clickhouse = await openClickHouse({ ...settings, DATA_DIR: engine.env.DATA_DIR, CLICKHOUSE_URL: engine.env.CLICKHOUSE_URL }, testLogger);
    },

    async close() {
      // an embedded engine that was opened again is closed twice: the second time there is nothing left
      await clickhouse.close();
      await engine.close();
    },
  };
  return world;
}

/** An edge event as small as it can be. */
export function edgeEvent(at: number, url: string, { project = 'someproject', path = new URL(url, 'https://x').pathname }: { project?: string; path?: string } = {}): string {
  return JSON.stringify({ id: `e${at}`, timestamp: at * BASE_MICROS, project, event_message: '', metadata: { request: { url, path } } });
}

/** An invocation as small as it can be; `ms` null = no execution time. */
export function invocationEvent(at: number, project: string, functionId: string, { status = 200, ms = 5 }: { status?: number | null; ms?: number | null } = {}): string {
  return JSON.stringify({ timestamp: at * BASE_MICROS, metadata: { project_ref: project, function_id: functionId, execution_time_ms: ms, response: { status_code: status } } });
}
