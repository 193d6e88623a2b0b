import { deepEqual } from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { crc32 } from 'node:zlib';
import { rows, type ClickHouse, type Reader } from '../../common/clickhouse/clickhouse.ts';
import { readSettings, type Settings } from '../../common/config/settings.ts';
import { ensureTopics } from '../../common/kafka/topics.ts';
import { sources, type SourceName } from '../../common/sources.ts';
import { createRandom } from '../../demo/random.ts';
import { contentOf, createTraffic, type TrafficEvent } from '../../demo/traffic.ts';
import { reconcile } from '../../services/ingest/operate/reconcile.ts';
import { statements as rollupStatements } from '../../services/rollup/period/catalogue.ts';
import { testLogger } from '../harness/clickhouse.ts';
import {
  kafkaBrokers,
  produce,
  readAll,
  testKafka,
  uniqueName,
  type ProduceOptions,
  type TestRecord,
} from '../harness/kafka.ts';
import type { StoredEvent } from '../harness/oracle.ts';
import { waitFor } from '../harness/wait-for.ts';
import { repairNow } from './repairs.ts';

/** What must become of a message: a row of its raw table, a dead letter with this reason, or nothing (a null value). */
type Outcome =
  | 'row'
  | 'skipped'
  | 'not_an_event'
  | 'malformed_json'
  | 'missing_project'
  | 'bad_timestamp'
  | 'timestamp_out_of_range';

interface Expected {
  readonly outcome: Outcome;
  /** CRC-32 of the value */
  readonly checksum: number;
}

/** One group, its nine topics and everything that was acknowledged in them. */
export interface World {
  readonly seed: number;
  readonly groupId: string;
  readonly env: Readonly<Record<string, string>>;
  readonly settings: Settings;
  topicOf(source: SourceName): string;
  /**
   * Produces this many messages per source, evenly over the partitions: rows of several days, dead letters of every
   * kind, null values.
   */
  produce(
    counts: Partial<Record<SourceName, number>>,
    options?: ProduceOptions & { partitions?: number },
  ): Promise<void>;
  /** Returns the events of `produce` that become rows, for the oracle. */
  rows(): StoredEvent[];
  /** Takes note of what was produced elsewhere. */
  acknowledged(
    source: SourceName,
    partition: number,
    offsets: readonly number[],
    value: string,
    outcome: Outcome,
  ): void;
  /**
   * Takes note of what stands in Kafka beside what was acknowledged: a producer sent again, or never heard the answer,
   * when a broker died.
   */
  sentAgain(source: SourceName, deadlineMs?: number): Promise<void>;
  /** The topic was deleted and made anew: what is produced from now on is of its next life. */
  madeAnew(source: SourceName): void;
  /** these offsets are no longer to be expected */
  forget(source: SourceName, partition: number, offsets: (offset: number) => boolean): void;
  /** `topic:incarnation:partition` of what the ledger does not cover yet of what was acknowledged. */
  behind(reader: Reader): Promise<string[]>;
  /** Waits until the ledger covers everything that was acknowledged. */
  finished(reader: Reader, deadlineMs?: number): Promise<void>;
  /**
   * Every acknowledged message is there once, in its table and in every rollup; throws what differs. Does the repairs
   * that a recovery has requested, but not through the reader of another process, which does them itself. The ledger
   * counts each null value as such, and as `gap` this many offsets that Kafka lost before they were taken.
   */
  expectExact(reader: Pick<ClickHouse, 'read' | 'shards'> | ClickHouse, gap?: number): Promise<void>;
}

const DAY = 86_400_000;
/** a project wherever a source looks for it */
const PROJECT = '"project":"abc","metadata":{"project":"abc","project_ref":"abc"}';
const SOURCES = sources.map((s) => s.name);

interface WorldOptions {
  readonly seed?: number;
  readonly partitions?: number;
  readonly brokers?: readonly string[];
  /** topics that are not made beforehand */
  readonly missing?: readonly SourceName[];
}

export async function createWorld({
  seed = Number(process.env['SEED'] ?? Date.now() % 1e9),
  partitions = 2,
  brokers = kafkaBrokers(),
  missing = [],
}: WorldOptions = {}): Promise<World> {
  const groupId = uniqueName('faults');
  const topicOf = (source: SourceName): string => `${source}.${groupId}`;
  console.log(`seed ${seed} group ${groupId}`);
  await ensureTopics(testKafka(brokers), SOURCES.filter((s) => !missing.includes(s)).map(topicOf), partitions, {
    deadlineMs: 60_000,
  });
  const env = {
    KAFKA_BROKERS: brokers.join(','),
    KAFKA_GROUP_ID: groupId,
    KAFKA_TOPICS: SOURCES.map((s) => `${s}=${topicOf(s)}`).join(','),
    KAFKA_TOPIC_PARTITIONS: String(partitions),
  };
  const settings = readSettings(env);
  const traffic = createTraffic({
    seed,
    projects: 5,
    functionsPerProject: 2,
    lateShare: 0.5,
    lateMicros: 4 * DAY * 1000,
    disorderMicros: 60e6,
    untimedShare: 0.1,
    keylessShare: 0.2,
    urlShapes: { platform: 950, foreign_reference: 20, long_letters: 20, window_limit: 8, many_windows: 2 },
  });
  const random = createRandom(seed, 77);
  const expected = new Map<string, Expected>();
  /** the last offset that is expected of each `topic:incarnation:partition`; undefined: `expected` has changed since */
  let ends: ReadonlyMap<string, number> | undefined;
  /** by source and checksum: the values that were handed to the producer, acknowledged or not */
  const sent = new Map<string, Outcome>();
  const lives = new Map<SourceName, number>();
  const events: { event: TrafficEvent; topic: string; partition: number; offset: number }[] = [];

  function message(source: SourceName): {
    event: TrafficEvent;
    value: string | null;
    outcome: Outcome;
    timestamp: number;
    key: string | null;
  } {
    const event = traffic.next(Date.now() * 1000, source);
    const { json, key, recordMillis: timestamp } = event;
    const of = (value: string | null, outcome: Outcome) => ({ event, value, outcome, timestamp, key });
    switch (random.below(40)) {
      case 0:
        return of(null, 'skipped');
      case 1:
        return of('', 'not_an_event');
      case 2:
        return of('[1,2]', 'not_an_event');
      case 3:
        return of(json.slice(0, -5), 'malformed_json');
      case 4:
        return of(`{"timestamp":1,${PROJECT}}`, 'bad_timestamp');
      case 5:
        return of(`{"timestamp":1000000000,${PROJECT}}`, 'timestamp_out_of_range');
      case 6:
        return of('{"id":"no project"}', 'missing_project');
      default:
        return of(json, 'row');
    }
  }

  const world: World = {
    seed,
    groupId,
    env,
    settings,
    topicOf,

    async produce(counts, { partitions: over = partitions, ...options } = {}) {
      const records: (TestRecord & ReturnType<typeof message> & { source: SourceName })[] = [];
      for (const [source, count] of Object.entries(counts) as [SourceName, number][]) {
        for (let i = 0; i < count; i++)
          records.push({ source, topic: topicOf(source), partition: i % over, ...message(source) });
      }
      for (const { source, value, outcome } of records)
        if (value !== null) sent.set(`${source}:${crc32(value)}`, outcome);
      const reports = await produce(records, { brokers, ...options });
      ends = undefined;
      records.forEach(({ source, value, outcome, event }, i) => {
        const { topic, partition, offset } = reports[i]!;
        if (outcome === 'row') events.push({ event, topic, partition, offset: Number(offset) });
        expected.set(`${topic}:${lives.get(source) ?? 0}:${partition}:${offset}`, {
          outcome,
          checksum: value === null ? 0 : crc32(value),
        });
      });
    },

    rows: () =>
      events.map(({ event, ...place }) => ({
        source: event.source,
        project: event.project,
        timestamp: event.timestampMicros,
        content: contentOf(event),
        ...place,
      })),

    acknowledged(source, partition, offsets, value, outcome) {
      ends = undefined;
      for (const offset of offsets)
        expected.set(`${topicOf(source)}:${lives.get(source) ?? 0}:${partition}:${offset}`, {
          outcome,
          checksum: crc32(value),
        });
    },

    async sentAgain(source, deadlineMs) {
      const prefix = `${topicOf(source)}:${lives.get(source) ?? 0}:`;
      for (const {
        partition,
        offset,
        message: { value },
      } of await readAll(topicOf(source), { brokers, ...(deadlineMs !== undefined && { deadlineMs }) })) {
        const checksum = value === null ? 0 : crc32(value);
        // the checksum of an empty value is 0 too
        const outcome = value === null ? 'skipped' : sent.get(`${source}:${checksum}`);
        const place = `${prefix}${partition}:${offset}`;
        if (outcome !== undefined && !expected.has(place)) expected.set(place, { outcome, checksum });
      }
      ends = undefined;
    },

    madeAnew(source) {
      lives.set(source, (lives.get(source) ?? 0) + 1);
    },

    forget(source, partition, offsets) {
      ends = undefined;
      const prefix = `${topicOf(source)}:${lives.get(source) ?? 0}:${partition}:`;
      for (const place of expected.keys())
        if (place.startsWith(prefix) && offsets(Number(place.slice(prefix.length)))) expected.delete(place);
    },

    async behind(reader) {
      const acknowledged = (ends ??= endsOf(expected.keys()));
      const ledger = await query<{ place: string; last: number }>(
        reader,
        `SELECT concat(topic, ':', toString(incarnation), ':', toString(partition)) AS place, toFloat64(max(last)) AS last FROM batches GROUP BY place`,
      );
      const lasts = new Map(ledger.map(({ place, last }) => [place, last]));
      return [...acknowledged].filter(([place, end]) => (lasts.get(place) ?? -1) < end).map(([place]) => place);
    },

    async finished(reader, deadlineMs = 30_000) {
      await waitFor(
        async () => {
          const behind = await world.behind(reader);
          if (behind.length > 0) throw new Error(behind.join(', '));
          return true;
        },
        deadlineMs,
        'everything acknowledged is in the ledger',
        250,
      );
    },

    async expectExact(reader, gap = 0) {
      const { ok, faults } = await reconcile(reader, settings.RAW_RETENTION_DAYS);
      const differences = await differencesAfterRepairs(reader, settings);
      const found = new Map<string, { outcome: string; checksum: number; times: number }>();
      for (const { place, outcome, checksum } of await query<{ place: string; outcome: string; checksum: number }>(
        reader,
        whereEverythingStands(groupId),
      )) {
        found.set(place, { outcome, checksum, times: (found.get(place)?.times ?? 0) + 1 });
      }
      const wrong: string[] = [];
      for (const [place, { outcome, checksum }] of expected) {
        const there = found.get(place);
        if (
          outcome === 'skipped'
            ? there !== undefined
            : there === undefined || there.times !== 1 || there.outcome !== outcome || there.checksum !== checksum
        ) {
          wrong.push(
            `${place} should be ${outcome}, is ${there === undefined ? 'nowhere' : `${there.outcome} x${there.times}`}`,
          );
        }
      }
      for (const place of found.keys()) if (!expected.has(place)) wrong.push(`${place} was never acknowledged`);
      deepEqual(
        { ok, faults, differences, wrong: wrong.slice(0, 10), wrongInAll: wrong.length },
        { ok: true, faults: [], differences: {}, wrong: [], wrongInAll: 0 },
      );
      const skipped = Map.groupBy(
        [...expected].filter(([, { outcome }]) => outcome === 'skipped').map(([place]) => place),
        partitionOf,
      );
      const counted = await query<{ place: string; nulls: number; gap: number }>(reader, whatIsSkipped(groupId));
      deepEqual(
        {
          skipped: Object.fromEntries(counted.flatMap((c) => (c.nulls === 0 ? [] : [[c.place, c.nulls]]))),
          gap: counted.reduce((sum, c) => sum + c.gap, 0),
        },
        { skipped: Object.fromEntries([...skipped].map(([place, offsets]) => [place, offsets.length])), gap },
      );
    },
  };
  return world;
}

/** Produces until the strike is over. */
export async function underLoad(world: World, strike: () => Promise<unknown>): Promise<void> {
  let isOver = false;
  const loading = (async () => {
    do await world.produce({ edge_logs: 500, function_edge_logs: 300, postgres_logs: 60, auth_logs: 40 });
    while (!isOver);
  })();
  try {
    await strike();
  } finally {
    isOver = true;
    await loading;
  }
}

function endsOf(places: Iterable<string>): Map<string, number> {
  const ends = new Map<string, number>();
  for (const place of places) {
    const partition = partitionOf(place);
    ends.set(partition, Math.max(ends.get(partition) ?? -1, Number(place.slice(partition.length + 1))));
  }
  return ends;
}

/** `topic:incarnation:partition` of a place. */
function partitionOf(place: string): string {
  return place.slice(0, place.lastIndexOf(':'));
}

async function query<T>(reader: Reader, sql: string): Promise<T[]> {
  return rows<T>(await reader.read({ sql, format: 'JSONEachRow' }));
}

function whereEverythingStands(groupId: string): string {
  const place = `concat(kafka_topic, ':', toString(kafka_incarnation), ':', toString(kafka_partition), ':', toString(kafka_offset)) AS place`;
  return [
    ...SOURCES.map(
      (source) =>
        `SELECT ${place}, 'row' AS outcome, CRC32(message) AS checksum FROM ${source} WHERE endsWith(kafka_topic, '${groupId}')`,
    ),
    `SELECT ${place}, toString(reason) AS outcome, CRC32(value) AS checksum FROM dead_letters WHERE endsWith(kafka_topic, '${groupId}')`,
  ].join('\nUNION ALL ');
}

/** What the ledger says of offsets that are in no table; a row of it that was written twice counts once. */
function whatIsSkipped(groupId: string): string {
  return `
    SELECT concat(topic, ':', toString(incarnation), ':', toString(partition)) AS place, toFloat64(sum(null_values)) AS nulls, toFloat64(sum(gap)) AS gap
    FROM (SELECT * FROM batches WHERE endsWith(topic, '${groupId}') LIMIT 1 BY topic, partition, incarnation, first)
    GROUP BY place ORDER BY place`;
}

/**
 * How long a repair may take: the rollup service looks every few seconds, and closes a period that is still written to
 * first.
 */
const REPAIRED_WITHIN_MS = 60_000;

/** What rollups differ in when no repair is open any more. */
async function differencesAfterRepairs(
  reader: Reader | ClickHouse,
  settings: Settings,
): Promise<Record<string, number>> {
  for (const until = Date.now() + REPAIRED_WITHIN_MS; ; await sleep(100)) {
    const open = await query(reader, rollupStatements.openRepairs);
    if (open.length > 0 && Date.now() <= until) {
      if ('execute' in reader) await repairNow({ clickhouse: reader, settings, logger: testLogger });
      continue;
    }
    const differences = await rollupDifferences(reader);
    return open.length === 0 ? differences : { ...differences, openRepairs: open.length };
  }
}

const FAMILIES = ['rest', 'storage', 'auth', 'realtime'];

/** Each rollup beside the same aggregate over its raw table; how many of its keys differ, where any does. */
async function rollupDifferences(reader: Reader): Promise<Record<string, number>> {
  const invocations = (bucket: string): string => `
    SELECT project, function_id, ${bucket}(timestamp, 'UTC') AS bucket, count() AS a, countIf(status_code >= 400) AS b, countIf(status_code BETWEEN 200 AND 299) AS c, countIf(status_code >= 500) AS d,
      count(execution_time_ms) AS e, toFloat64(ifNull(sum(execution_time_ms), 0)) AS f, min(execution_time_ms) AS g, max(execution_time_ms) AS h
    FROM function_edge_logs WHERE is_invocation GROUP BY project, function_id, bucket`;
  const invocationRollup = (width: number): string => `
    SELECT project, function_id, at, sum(count) AS a, sum(error_count) AS b, sum(status_2xx) AS c, sum(status_5xx) AS d, sum(execution_count) AS e, sum(execution_sum) AS f, min(execution_min) AS g, max(execution_max) AS h
    FROM function_invocations WHERE width = ${width} GROUP BY project, function_id, at`;
  const requests = (bucket: string): string => `
    SELECT arrayJoin(refs) AS ref, ${bucket}(timestamp, 'UTC') AS bucket, count() AS requests, ${FAMILIES.map((f, i) => `countIf(bitTest(families, ${i})) AS ${f}`).join(', ')}
    FROM edge_logs GROUP BY ref, bucket`;
  const requestRollup = (width: number): string =>
    `SELECT ref, toDateTime(at, 'UTC') AS bucket, sum(requests) AS n, ${FAMILIES.map((f) => `sum(${f}) AS ${f}_sum`).join(', ')} FROM api_requests WHERE width = ${width} GROUP BY ref, bucket`;
  const single = (ref: string, url: string, where: string): string =>
    `SELECT ${ref} AS reference, timestamp, ${url} AS address, count() AS n, ${FAMILIES.map((f, i) => `countIf(bitTest(families, ${i})) AS ${f}`).join(', ')} FROM edge_logs WHERE ${where} GROUP BY reference, timestamp, address`;
  const singleRollup = (where: string): string =>
    `SELECT ref, at, url, sum(requests) AS n, ${FAMILIES.map((f) => `sum(${f}) AS ${f}_sum`).join(', ')} FROM api_requests WHERE width = 0 AND ${where} GROUP BY ref, at, url`;
  const NO_REF = "toFixedString('', 20)";
  const pairs: Record<string, readonly [string, string]> = {
    'function_invocations by minute': [invocations('toStartOfMinute'), invocationRollup(60)],
    'function_invocations by hour': [invocations('toStartOfHour'), invocationRollup(3600)],
    'function_invocations by day': [invocations('toStartOfDay'), invocationRollup(86_400)],
    'api_requests by minute': [requests('toStartOfMinute'), requestRollup(60)],
    'api_requests by hour': [requests('toStartOfHour'), requestRollup(3600)],
    'api_requests one by one': [single('arrayJoin(refs)', "''", 'NOT refs_overflow'), singleRollup(`ref != ${NO_REF}`)],
    'api_requests with too many references': [
      single(NO_REF, 'assumeNotNull(url)', 'refs_overflow'),
      singleRollup(`ref = ${NO_REF}`),
    ],
  };
  const differences: Record<string, number> = {};
  for (const [name, [raw, rollup]] of Object.entries(pairs)) {
    const [row] = await query<{ n: number; keys: number }>(
      reader,
      `SELECT toUInt32(countIf(times != 2)) AS n, toUInt32(count()) AS keys FROM (SELECT k, count() AS times FROM (SELECT tuple(*) AS k FROM (${raw}) UNION ALL SELECT tuple(*) AS k FROM (${rollup})) GROUP BY k)`,
    );
    if (row!.n > 0) differences[name] = row!.n;
  }
  return differences;
}
