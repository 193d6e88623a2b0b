import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { rows } from '../../../common/clickhouse/clickhouse.ts';
import { commandRoutes } from '../../../common/command/command-routes.ts';
import { systemClock } from '../../../common/clock.ts';
import { readSettings, type Settings } from '../../../common/config/settings.ts';
import type { RouteRequest } from '../../../common/http/route.ts';
import { createRegistry } from '../../../common/metrics.ts';
import { sources } from '../../../common/sources.ts';
import { deadLettersCommand } from '../../../services/ingest/commands/dead-letters.ts';
import { argsOf } from '../../harness/command.ts';
import { createDecoders, startIngest, type RunningIngest } from '../../../services/ingest/service.ts';
import {
  listDeadLetters,
  readDeadLetter,
  replayAll,
  replayDeadLetter,
  type ReplayOptions,
} from '../../../services/ingest/operate/dead-letters.ts';
import { reconcile } from '../../../services/ingest/operate/reconcile.ts';
import type { Context } from '../../../services/rollup/period/context.ts';
import { admitNew } from '../../../services/rollup/history.ts';
import { createRollupMetrics } from '../../../services/rollup/period/metrics.ts';
import { beginToday } from '../../../services/rollup/period/periods.ts';
import { repairOpen } from '../../../services/rollup/repairs.ts';
import { openTestClickHouse, testLogger, type TestClickHouse } from '../../harness/clickhouse.ts';
import { openTestStore } from '../../harness/ingest-store.ts';
import { produce, testKafka, uniqueName } from '../../harness/kafka.ts';
import { waitFor } from '../../harness/wait-for.ts';

// A bad message harms nobody: it is kept with its bytes, place and reason; and once the rules allow it, replay makes it
// a row, once.

const DAY = 86_400_000;

describe('dead letters', () => {
  const suffix = uniqueName('dead');
  const topic = `edge_logs.${suffix}`;
  let settings: Settings;
  let engine: TestClickHouse;
  let ingest: RunningIngest;
  let replaying: ReplayOptions;
  let rollup: Context;

  const good = (id: string): string =>
    JSON.stringify({
      id,
      project: 'p',
      timestamp: Date.now(),
      metadata: { request: { url: 'https://abcdefghijklmnopqrst.example/rest/v1/x', path: '/rest/v1/x' } },
    });
  const old = JSON.stringify({
    id: 'old',
    project: 'p',
    timestamp: Date.now() - 100 * DAY,
    metadata: { request: { url: 'https://abcdefghijklmnopqrst.example/rest/v1/x', path: '/rest/v1/x' } },
  });
  const cases: readonly (readonly [value: Buffer | string | null, reason: string | null])[] = [
    [good('1'), null],
    ['', 'not_an_event'],
    ['[1,2]', 'not_an_event'],
    [good('2'), null],
    ['{"a":', 'malformed_json'],
    ['"rest"}', 'not_an_event'],
    [Buffer.from('7b2261223a22ff227d', 'hex'), 'malformed_json'],
    ['{"id":"no project"}', 'missing_project'],
    ['{"project":"p","timestamp":"10:00"}', 'bad_timestamp'],
    [old, 'timestamp_out_of_range'],
    [null, 'null value'],
    ['{"project":"p","kafka_offset":0,"reason":"","big":123456789012345678901234567890}', null],
    [good('3'), null],
  ];

  beforeAll(async () => {
    engine = await openTestClickHouse();
    settings = readSettings({
      KAFKA_TOPICS: sources.map((s) => `${s.name}=${s.name}.${suffix}`).join(','),
      KAFKA_GROUP_ID: suffix,
      RAW_RETENTION_DAYS: '90',
      KAFKA_TOPIC_PARTITIONS: '1',
    });
    replaying = {
      clickhouse: engine.clickhouse,
      decoders: createDecoders(settings),
      retentionDays: 90,
      maxEventBytes: settings.MAX_EVENT_BYTES,
      rawAvroTopics: [],
      clock: systemClock,
    };
    rollup = {
      clickhouse: engine.clickhouse,
      settings,
      logger: testLogger,
      metrics: createRollupMetrics(createRegistry()),
      clock: Date.now,
      engineClock: () => Promise.resolve(Date.now()),
      wait: () => Promise.resolve(),
    };
    await beginToday(rollup);
    await admitNew(rollup);
    ingest = await startIngest({
      clickhouse: engine.clickhouse,
      kafka: testKafka(),
      settings,
      logger: testLogger,
      registry: createRegistry(),
    });
    await produce(
      cases.map(([value]) => ({ topic, partition: 0, key: 'k', value, headers: [['h', 'v']], timestamp: Date.now() })),
    );
    await waitFor(async () => (await account()).consumed === cases.length, 30_000, 'all messages in the ledger');
  });
  afterAll(async () => {
    await ingest.stop();
    await engine.close();
  });

  const account = async (): Promise<{
    consumed: number;
    stored: number;
    dead_lettered: number;
    skipped: number;
    replayed: number;
  }> => {
    const { ok, faults, partitions } = await reconcile(engine.clickhouse, 3650);
    expect(faults).toEqual([]);
    expect(ok).toBe(true);
    return partitions[0] ?? { consumed: 0, stored: 0, dead_lettered: 0, skipped: 0, replayed: 0 };
  };
  const count = async (sql: string): Promise<number> =>
    rows<{ n: number }>(
      await engine.clickhouse.read({ sql: `SELECT toUInt32(${sql}) AS n`, format: 'JSONEachRow' }),
    )[0]!.n;

  test('each bad message among good ones has its reason, its bytes, key and headers; the good ones are rows', async () => {
    const bad = cases.flatMap(([value, reason], offset) =>
      reason === null || value === null ? [] : [{ value: Buffer.from(value), reason, offset: String(offset) }],
    );
    const listed = await listDeadLetters(engine.clickhouse, { topic });
    expect(listed.map(({ offset, reason }) => ({ offset, reason }))).toEqual(
      bad.map(({ offset, reason }) => ({ offset, reason })),
    );
    for (const { offset, value } of bad) {
      const letter = await readDeadLetter(engine.clickhouse, { topic, partition: 0, offset });
      expect(letter!.record.value).toEqual(value);
      expect(letter!.record.key).toEqual(Buffer.from('k'));
      expect(letter!.record.headers).toEqual([['h', Buffer.from('v')]]);
    }
    expect(await account()).toMatchObject({ stored: 4, dead_lettered: 8, skipped: 1, replayed: 0 });
    expect(await listDeadLetters(engine.clickhouse, { topic, reason: 'malformed_json' })).toHaveLength(2);
  });

  test('a list that is cut says so', async () => {
    const context = { clickhouse: engine.clickhouse, settings, logger: testLogger };
    const list = async (limit: string): Promise<[number, string]> => {
      const result = await deadLettersCommand.run(
        context,
        argsOf(deadLettersCommand, 'list', '--topic', topic, '--limit', limit),
      );
      return [
        'dead_letters' in result ? result.dead_letters.length : 0,
        String(deadLettersCommand.print(result)).trimEnd().split('\n').at(-1)!,
      ];
    };
    expect(await list('7')).toEqual([7, 'there are more: --limit N']);
    expect(await list('8')).toEqual([8, expect.stringContaining(`${topic} 0 9  timestamp_out_of_range`)]);
  });

  test('with --json, partitions and offsets are numbers', async () => {
    const context = { clickhouse: engine.clickhouse, settings, logger: testLogger };
    const documentOf = (...words: string[]): Promise<unknown> =>
      deadLettersCommand.run(context, argsOf(deadLettersCommand, ...words));
    expect(await documentOf('list', '--topic', topic, '--reason', 'timestamp_out_of_range')).toMatchObject({
      dead_letters: [{ topic, partition: 0, offset: 9 }],
    });
    expect(await documentOf('show', topic, '0', '9')).toMatchObject({ topic, partition: 0, offset: 9 });
  });

  test('replay with unchanged rules stores nothing and says why', async () => {
    expect((await replayAll(replaying, { topic })).replayed).toEqual({
      not_an_event: 3,
      malformed_json: 2,
      missing_project: 1,
      bad_timestamp: 1,
      timestamp_out_of_range: 1,
    });
    expect(await account()).toMatchObject({ stored: 4, dead_lettered: 8, replayed: 0 });
  });

  test('replay with rules that allow it stores the row once, with its own coordinates, in every rollup, however often it is repeated', async () => {
    const allowed: ReplayOptions = { ...replaying, retentionDays: 365 };
    const letter = (await readDeadLetter(engine.clickhouse, { topic, partition: 0, offset: '9' }))!;
    const before = await count(`(SELECT sum(requests) FROM api_requests WHERE width = 3600)`);
    // two at the same time, and again after the mark: as after a kill between row and mark
    expect(await Promise.all([replayDeadLetter(allowed, letter), replayDeadLetter(allowed, letter)])).toEqual([
      'stored',
      'stored',
    ]);
    expect(await replayDeadLetter(allowed, letter)).toBe('stored');
    expect(
      await count(`(SELECT count() FROM edge_logs WHERE kafka_topic = '${topic}' AND kafka_offset = 9 AND id = 'old')`),
    ).toBe(1);
    // of two replays at once the second ends the first, if it finds the row before its views are filled: a repair fills
    // them
    await waitFor(async () => (await repairOpen(rollup)) === 0, 20_000, 'the repairs are done');
    expect(await count(`(SELECT sum(requests) FROM api_requests WHERE width = 3600)`)).toBe(before + 1);
    expect(await account()).toMatchObject({
      consumed: cases.length,
      stored: 5,
      dead_lettered: 7,
      skipped: 1,
      replayed: 1,
    });
    const [marked] = (await listDeadLetters(engine.clickhouse, { topic })).filter((d) => d.offset === '9');
    expect(marked!.replayed_at).toMatch(/^\d{4}-\d\d-\d\dT/);
    expect(await listDeadLetters(engine.clickhouse, { topic, open: true })).toHaveLength(7);
    expect((await replayAll(allowed, { topic, reason: 'timestamp_out_of_range' })).replayed).toEqual({});
  });

  test('a replayed row that retention has dropped since is no fault of the account; one that is gone before its time is', async () => {
    const day = new Date(Date.now() - 100 * DAY).toISOString().slice(0, 10);
    await engine.clickhouse.execute({ sql: `ALTER TABLE edge_logs DROP PARTITION '${day}'` });
    const { ok, faults, partitions } = await reconcile(engine.clickhouse, 90);
    expect({ ok, faults }).toEqual({ ok: true, faults: [] });
    expect(partitions).toMatchObject([
      { consumed: cases.length, stored: 5, dead_lettered: 7, skipped: 1, replayed: 1 },
    ]);
    expect((await reconcile(engine.clickhouse, 365, 0)).faults).toEqual([
      expect.stringContaining('rows differ from the ledger'),
    ]);
  });

  const overHttp = async (topic: string): Promise<unknown> => {
    const context = { clickhouse: engine.clickhouse, settings: readSettings(), logger: testLogger };
    const [route] = commandRoutes(context, [deadLettersCommand]);
    const body = Buffer.from(JSON.stringify({ action: 'replay_all', filter: { topic } }));
    const { json } = await route!.handle({ body, signal: new AbortController().signal } as RouteRequest);
    return (json as { result: { replayed: unknown } }).result.replayed;
  };
  test.each([
    ['the command', async (topic: string) => (await replayAll(replaying, { topic })).replayed],
    ['HTTP', overHttp],
  ])('by %s, letters of every life of a recreated topic are replayed, also at the same offset', async (by, replay) => {
    const other = `edge_logs.lives.${by === 'HTTP' ? 'http' : 'command'}.${suffix}`;
    const store = openTestStore(engine.clickhouse, { source: 'edge_logs', topic: other, retentionDays: 1 });
    const aged = (id: string): Buffer =>
      Buffer.from(JSON.stringify({ id, project: 'p', timestamp: Date.now() - 2 * DAY }));
    for (const incarnation of [0, 1])
      await store.writeBatch({
        incarnation,
        records: [{ offset: 0, time: Date.now(), key: null, value: aged(`life-${incarnation}`), headers: [] }],
      });
    // without more words it is the last life
    expect((await readDeadLetter(engine.clickhouse, { topic: other, partition: 0, offset: '0' }))!.incarnation).toBe(1);
    expect(await replay(other)).toEqual({ stored: 2 });
    expect(await listDeadLetters(engine.clickhouse, { topic: other, open: true })).toEqual([]);
    expect(
      rows(
        await engine.clickhouse.read({
          sql: `SELECT id FROM edge_logs WHERE kafka_topic = '${other}' ORDER BY id`,
          format: 'JSONEachRow',
        }),
      ),
    ).toEqual([{ id: 'life-0' }, { id: 'life-1' }]);
  });

  test('a letter of an unfinished batch is refused until the batch is in the ledger', async () => {
    const other = `edge_logs.open.${suffix}`;
    const store = openTestStore(engine.clickhouse, { source: 'edge_logs', topic: other, retentionDays: 1 });
    const batch = {
      evaluatedAt: Date.now(),
      records: [
        {
          offset: 0,
          time: Date.now(),
          key: null,
          value: Buffer.from(JSON.stringify({ id: 'open', project: 'p', timestamp: Date.now() - 2 * DAY })),
          headers: [],
        },
      ],
    };
    await store.insertBatch(batch);
    expect((await replayAll(replaying, { topic: other })).replayed).toEqual({ unfinished: 1 });
    expect(await count(`(SELECT count() FROM edge_logs WHERE kafka_topic = '${other}')`)).toBe(0);
    await store.writeBatch(batch);
    expect((await replayAll(replaying, { topic: other })).replayed).toEqual({ stored: 1 });
    expect(await count(`(SELECT count() FROM edge_logs WHERE kafka_topic = '${other}')`)).toBe(1);
  });

  test('a replay that was killed between raw and views is completed, and its rollups are rebuilt', async () => {
    const other = `edge_logs.half.${suffix}`;
    const store = openTestStore(engine.clickhouse, { source: 'edge_logs', topic: other, retentionDays: 1 });
    const at = Date.now() - 2 * DAY;
    await store.writeBatch({
      records: [
        {
          offset: 0,
          time: at,
          key: null,
          value: Buffer.from(JSON.stringify({ id: 'half', project: 'p', timestamp: at })),
          headers: [],
        },
      ],
    });
    // its row came, and then the process was killed: the next try finds it announced and in raw
    const stopped = {
      ...replaying,
      clickhouse: {
        ...engine.clickhouse,
        execute: (statement: Parameters<typeof engine.clickhouse.execute>[0]) =>
          statement.sql.includes('true, evaluated_at')
            ? Promise.reject(new Error('killed'))
            : engine.clickhouse.execute(statement),
      },
    };
    await expect(replayAll(stopped, { topic: other })).rejects.toThrow('killed');
    const before = await count('(SELECT count() FROM rollup_repairs)');
    expect((await replayAll(replaying, { topic: other })).replayed).toEqual({ stored: 1 });
    expect(await count(`(SELECT count() FROM edge_logs WHERE kafka_topic = '${other}')`)).toBe(1);
    expect(await count('(SELECT count() FROM rollup_repairs)')).toBe(before + 1);
  });

  test('the same bytes at another time are another message', async () => {
    const store = openTestStore(engine.clickhouse, { source: 'edge_logs', topic: uniqueName('again'), partition: 0 });
    const at = (time: number) => [{ offset: 0, time, key: null, headers: [], value: Buffer.from('[1,2]') }];
    await store.insertBatch({ records: at(5) });
    expect(await store.compare(0, at(5))).toEqual(['same']);
    expect(await store.compare(0, at(6))).toEqual(['another']);
  });
});
