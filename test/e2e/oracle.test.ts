import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { rows } from '../../common/clickhouse/clickhouse.ts';
import { readSettings, type Settings } from '../../common/config/settings.ts';
import { createKafka, type KafkaClient } from '../../common/kafka/client.ts';
import { createRegistry } from '../../common/metrics.ts';
import { sources, type SourceName } from '../../common/sources.ts';
import { createTraffic, type TrafficEvent } from '../../demo/traffic.ts';
import { notations } from '../../demo/timestamps.ts';
import { urlShapes } from '../../demo/urls.ts';
import { startIngest, type RunningIngest } from '../../services/ingest/service.ts';
import { reconcile } from '../../services/ingest/operate/reconcile.ts';
import { startQuery } from '../../services/query/service.ts';
import { openTestClickHouse, temporaryFolder, testLogger, type TestClickHouse } from '../harness/clickhouse.ts';
import { expectInvocationStats } from '../harness/expect-answers.ts';
import { kafkaBrokers } from '../harness/kafka.ts';
import { waitFor } from '../harness/wait-for.ts';
import {
  apiCounts,
  invocationsOf,
  invocationStats,
  logsAll,
  readExactly,
  type StoredEvent,
} from '../harness/oracle.ts';

// Produced through real Kafka, read back over HTTP, compared with a plain recomputation over what was produced.

const SEED = Number(process.env['SEED'] ?? 20_260_301);
const EVENTS = 12_000;
const DAY = 86_400_000;
const HOUR = 3_600_000;
const API_KEY = 'oracle-test-key';

/** the project of events whose numbers are written in odd ways */
const ODD = 'oddlywrittennumberss';
/** of the status code or the execution time: what counts, what is null, and what is no error */
const ODD_NUMBERS =
  '65535,65536,-500,400.5,1e3,4e400,500.0,9007199254740993,"+500",".5","5.","500.","-0"," 500","5e2",""'.split(',');
/** of an id */
const ODD_IDS = ['9007199254740993', '9007199254740992', '1.0', '1', '-0', '1e3', '12345678901234567890123', '"1.00"'];

/** One event of edge_logs for each odd id, and of function_edge_logs for each odd number; `from`: unix microseconds. */
function oddlyWritten(from: number): TrafficEvent[] {
  const request = `"request":{"url":"https://${ODD}.supabase.co/rest/v1/t","path":"/rest/v1/t"}`;
  const texts = [
    ...ODD_IDS.map((id) => [
      'edge_logs',
      `"id":${id},"project":"${ODD}","metadata":{${request},"list":[${id},1.50,1e400],"of":{"it":${id}}}`,
    ]),
    ...ODD_NUMBERS.map((number, i) => [
      'function_edge_logs',
      `"metadata":{"project_ref":"${ODD}","function_id":${ODD_IDS[i % 3]},` +
        `"execution_time_ms":${number},"response":{"status_code":${number}}}`,
    ]),
  ] as const;
  return texts.map(([source, text], i): TrafficEvent => ({
    source: source as SourceName,
    project: ODD,
    key: ODD,
    timestampMicros: from + i * 1000,
    recordMillis: Math.floor(from / 1000),
    json: `{"timestamp":${from + i * 1000},${text}}`,
  }));
}

const evenly = <T extends string>(names: readonly T[]): Record<T, number> =>
  Object.fromEntries(names.map((name) => [name, 1])) as Record<T, number>;

describe(`every endpoint answers what the produced events say (seed ${SEED})`, () => {
  const folder = temporaryFolder();
  const suffix = `oracle-${process.pid}-${Date.now()}`;
  const topicOf = (source: SourceName): string => `${source}.${suffix}`;
  const startedAt = Date.now();
  const events: StoredEvent[] = [];
  let settings: Settings;
  let engine: TestClickHouse;
  let kafka: KafkaClient;
  let ingest: RunningIngest;
  let projects: string[] = [];
  let functions: string[] = [];

  beforeAll(async () => {
    settings = readSettings({
      KAFKA_TOPICS: sources.map((s) => `${s.name}=${topicOf(s.name)}`).join(','),
      KAFKA_GROUP_ID: suffix,
      DATA_DIR: folder.path,
      PORT: '0',
      API_KEY,
      RAW_RETENTION_DAYS: '90',
    });
    engine = await openTestClickHouse();
    kafka = createKafka({
      brokers: kafkaBrokers(),
      clientId: suffix,
      logger: testLogger,
      maxDecompressedBytes: settings.KAFKA_MAX_DECOMPRESSED_BYTES,
    });
    ingest = await startIngest({
      clickhouse: engine.clickhouse,
      kafka,
      settings,
      logger: testLogger,
      registry: createRegistry(),
    });
    await produceAll();
    await waitFor(async () => (await consumed()) === events.length, 60_000, 'every event in the ledger');
    const account = await reconcile(engine.clickhouse, settings.RAW_RETENTION_DAYS);
    expect(account.faults).toEqual([]);
    expect(account.partitions.reduce((sum, p) => sum + p.stored, 0)).toBe(events.length);
    expect(account.partitions.reduce((sum, p) => sum + p.dead_lettered + p.skipped, 0)).toBe(0);
  });

  afterAll(async () => {
    await ingest.stop();
    await engine.close();
    folder.remove();
  });

  async function consumed(): Promise<number> {
    const [row] = rows<{ consumed: number }>(
      await engine.clickhouse.read({
        sql: 'SELECT toUInt32(sum(last - first + 1)) AS consumed FROM batches',
        format: 'JSONEachRow',
      }),
    );
    return row?.consumed ?? 0;
  }

  /**
   * All notations, forms of id and of URL, self-hosted shapes, late, ahead and out of order; and events on the edges of
   * buckets.
   */
  async function produceAll(): Promise<void> {
    const oddities = {
      ids: { uuid: 6, number: 1, empty: 1, null: 1, absent: 1 },
      urlShapes: evenly(urlShapes),
      selfHostedShare: 0.1,
      untimedShare: 0.1,
      keylessShare: 0.1,
    } as const;
    const traffic = createTraffic({
      seed: SEED,
      projects: 6,
      functionsPerProject: 3,
      notations: evenly(notations),
      ...oddities,
      disorderMicros: 120e6,
      lateShare: 0.4,
      lateMicros: 8 * DAY * 1000,
      aheadShare: 0.02,
      aheadMicros: 50 * 60e6,
    });
    const onEdges = createTraffic({
      seed: SEED,
      run: 1,
      projects: 6,
      functionsPerProject: 3,
      notations: { microseconds: 1 },
      urlShapes: evenly(urlShapes),
    });
    const produced: TrafficEvent[] = Array.from({ length: EVENTS }, (_, i) =>
      traffic.next((startedAt - (i % 7200) * 1000) * 1000),
    );
    for (const edge of [5 * 60_000, 15 * 60_000, HOUR, 3 * HOUR, DAY, 3 * DAY, 7 * DAY]) {
      for (const now of nows()) {
        for (const shift of [-1_000, -1, 0, 1, 1_000])
          for (const source of ['edge_logs', 'function_edge_logs'] as const)
            produced.push(onEdges.next((now - edge) * 1000 + shift, source));
      }
    }
    projects = [...new Set(produced.map((e) => e.project))];
    produced.push(...oddlyWritten((nows()[0]! - 20_000) * 1000));
    functions = [...new Set(invocationsOf(produced.map((e) => stored(e, '', 0, 0))).map((i) => i.functionId))];
    const producer = kafka.producer();
    await producer.connect();
    for (const { name } of sources) {
      const ofSource = produced.filter((e) => e.source === name);
      // a partition of its own choice for every event, so that the offsets follow from the order
      const byPartition = [0, 1, 2].map((partition) => ofSource.filter((_, i) => i % 3 === partition));
      for (const [partition, list] of byPartition.entries()) {
        for (let i = 0; i < list.length; i += 500) {
          const part = list.slice(i, i + 500);
          const [report] = await producer.send({
            topic: topicOf(name),
            messages: part.map((e) => ({ partition, key: e.key, value: e.json, timestamp: String(e.recordMillis) })),
          });
          part.forEach((e, j) => events.push(stored(e, topicOf(name), partition, Number(report?.baseOffset) + j)));
        }
      }
    }
    await producer.disconnect();
  }

  function stored(event: TrafficEvent, topic: string, partition: number, offset: number): StoredEvent {
    return {
      source: event.source,
      project: event.project,
      timestamp: event.timestampMicros,
      content: readExactly(event.json) as StoredEvent['content'],
      topic,
      partition,
      offset,
    };
  }

  /** unix ms: an instant on the edge of minute, hour and (often) nothing else, and one on no edge at all */
  function nows(): readonly number[] {
    return [Math.floor(startedAt / HOUR) * HOUR, startedAt - 123];
  }

  test.each([0, 1])('at instant %i', async (instant) => {
    const now = nows()[instant]!;
    const query = await startQuery({
      // in a cluster, each instant asks another node
      clickhouse: instant === 0 ? engine.clickhouse : (engine.other ?? engine.clickhouse),
      settings,
      logger: testLogger,
      registry: createRegistry(),
      clock: () => now,
    });
    await query.ready;
    const ask = async (endpoint: string, params: Record<string, string>): Promise<Record<string, unknown>[]> => {
      const response = await fetch(
        `${query.address}/api/endpoints/${endpoint}?${new URLSearchParams(params).toString()}`,
        { headers: { 'x-api-key': API_KEY, 'content-type': 'application/json; charset=utf-8' } },
      );
      const body = await response.text();
      expect(response.status, body).toBe(200);
      return (readExactly(body) as { result: Record<string, unknown>[] }).result;
    };
    try {
      const invocations = invocationsOf(events);
      const counted = { invocations: 0, requests: 0 };
      const expectApiCounts = async (
        project: string,
        interval: string,
        matches: (url: string) => boolean,
      ): Promise<void> => {
        const expected = apiCounts(events, interval, matches, now * 1000);
        expect(await ask('usage.api-counts', { project, interval }), `${project} ${interval}`).toEqual(expected);
        for (const { timestamp: _, ...families } of expected)
          counted.requests += Object.values(families).reduce((sum, count) => sum + count, 0);
      };
      for (const project of projects) {
        for (const interval of ['5min', '15min', '1hr', '1day', '7day', 'nonsense', '']) {
          for (const function_id of ['', functions[instant]!]) {
            const expected = invocationStats(invocations, { project, function_id, interval }, now * 1000);
            const answer = await ask('functions.invocation-stats', { project, interval, function_id });
            expectInvocationStats(answer, expected);
            counted.invocations += expected.reduce((sum, row) => sum + row.count, 0);
          }
        }
        for (const interval of ['minutely', 'hourly', 'daily', '15min', '30min', '1hr', '3hr', '1day', '3day', '7day'])
          await expectApiCounts(project, interval, (url) => url.includes(project));
        for (const project_tier of ['', 'FREE', 'PRO', 'PAYG']) {
          expect(await ask('logs.all', { project, project_tier }), `${project} ${project_tier}`).toEqual(
            logsAll(events, { project, project_tier }, now * 1000),
          );
        }
        const middle = logsAll(events, { project, project_tier: 'PRO' }, now * 1000)[20]!.timestamp;
        const iso = `${new Date(Math.floor(middle / 1000)).toISOString().slice(0, 23)}${String(middle % 1000).padStart(3, '0')}Z`;
        expect(await ask('logs.all', { project, project_tier: 'PRO', iso_timestamp_end: iso })).toEqual(
          logsAll(events, { project, project_tier: 'PRO', until: middle }, now * 1000),
        );
        expect(await ask('logs.all', { project, project_tier: 'PRO', iso_timestamp_start: iso })).toEqual(
          logsAll(events, { project, project_tier: 'PRO', after: middle }, now * 1000),
        );
      }
      for (const [pattern, js] of [
        ['supabase', /supabase/],
        ['[a-z]{20}\\.', /[a-z]{20}\./],
        ['/rest/v1/', /\/rest\/v1\//],
        ['^https://[^/]+/auth', /^https:\/\/[^/]+\/auth/],
      ] as const) {
        const before = counted.requests;
        await expectApiCounts(pattern, 'daily', (url) => js.test(url));
        expect(counted.requests - before, pattern).toBeGreaterThan(100);
      }
      for (const function_id of ['', ...ODD_IDS.slice(0, 3)]) {
        const expected = invocationStats(invocations, { project: ODD, function_id }, now * 1000);
        expectInvocationStats(await ask('functions.invocation-stats', { project: ODD, function_id }), expected);
        expect(expected.some((row) => row.error_count > 0 && row.error_count < row.count)).toBe(true);
      }
      const odd = logsAll(events, { project: ODD }, now * 1000);
      expect(odd).toHaveLength(ODD_IDS.length);
      expect(await ask('logs.all', { project: ODD })).toEqual(odd);
      expect(counted.invocations).toBeGreaterThan(500);
      expect(counted.requests).toBeGreaterThan(500);
    } finally {
      await query.stop();
    }
  });
});
