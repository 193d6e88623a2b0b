import { spawn } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { rows, type ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { openEmbedded } from '../../common/clickhouse/embedded/embedded.ts';
import { migrate } from '../../common/clickhouse/migrations.ts';
import { readSettings } from '../../common/config/settings.ts';
import { createRegistry } from '../../common/metrics.ts';
import { listDeadLetters, readDeadLetter } from '../../services/ingest/operate/dead-letters.ts';
import type { Record } from '../../services/ingest/evaluate/record.ts';
import { reconcile } from '../../services/ingest/operate/reconcile.ts';
import type { Context } from '../../services/rollup/period/context.ts';
import { admitNew } from '../../services/rollup/history.ts';
import { createRollupMetrics } from '../../services/rollup/period/metrics.ts';
import { beginToday } from '../../services/rollup/period/periods.ts';
import { repairOpen } from '../../services/rollup/repairs.ts';
import { schemaOf, singleObject } from '../harness/avro.ts';
import { temporaryFolder, testLogger } from '../harness/clickhouse.ts';
import { COMPILE_CACHE } from '../harness/compile-cache.ts';
import { openTestStore } from '../harness/ingest-store.ts';

// Guarantee: a replay that is killed at any point and repeated stores each letter once, in its table and in every
// rollup, with its own coordinates;
// a letter of every reason is evaluated again: what today's rules take is stored, and the others stay as they are, byte
// for byte.

const replaySteps = [
  'after_announcement',
  'before_insert',
  'in_insert',
  'after_insert',
  'in_mark',
  'after_mark',
] as const;
export type ReplayStep = (typeof replaySteps)[number];

const DAY = 86_400_000;
const TOPIC = 'edge_logs.replay';
const REF = 'abcdefghijklmnopqrst';
const event = (timestamp: number): Buffer =>
  Buffer.from(
    JSON.stringify({
      id: 'x',
      project: 'p',
      timestamp,
      metadata: { request: { url: `https://${REF}.example/rest/v1/x`, path: '/rest/v1/x' } },
    }),
  );
const newer = { ...schemaOf('edge_logs'), fields: [...schemaOf('edge_logs').fields, { name: 'shard', type: 'int' }] };
const nulls = Object.fromEntries(schemaOf('edge_logs').fields.map(({ name }) => [name, null]));

/** What is a letter under the rules of the first day, by reason and content. */
const now = Date.now();
const LETTERS: readonly { readonly reason: string; readonly value: Buffer; readonly becomesRow: boolean }[] = [
  ...[80, 81, 82, 83].map((days) => ({
    reason: 'timestamp_out_of_range',
    value: event(now - days * DAY),
    becomesRow: true,
  })),
  { reason: 'too_large', value: Buffer.concat([event(now), Buffer.alloc(3_000, ' ')]), becomesRow: true },
  {
    reason: 'unknown_schema',
    value: singleObject(newer, { ...nulls, project: 'p', event_message: 'avro', shard: 1 }),
    becomesRow: true,
  },
  { reason: 'not_an_event', value: Buffer.from('[{"project":"p"}]'), becomesRow: false },
  {
    reason: 'malformed_json',
    value: Buffer.from([...Buffer.from('{"project":"p","a":"'), 0xff, 0x00]),
    becomesRow: false,
  },
  { reason: 'malformed_avro', value: Buffer.from([0xc3, 0x01, 0xff]), becomesRow: false },
  { reason: 'missing_project', value: Buffer.from('{"id":"nobody"}'), becomesRow: false },
  { reason: 'bad_timestamp', value: Buffer.from('{"project":"p","timestamp":"10:00"}'), becomesRow: false },
];
const ROWS = LETTERS.filter((l) => l.becomesRow).length;

async function open(dataDir: string): Promise<ClickHouse> {
  const clickhouse = await openEmbedded({ dataDir, logger: testLogger });
  await migrate(clickhouse, testLogger);
  return clickhouse;
}

async function makeLetters(clickhouse: ClickHouse): Promise<void> {
  const records = LETTERS.map(({ value }, offset): Record => ({
    offset,
    time: now,
    key: Buffer.from([offset, 0xff]),
    value,
    headers: [
      ['h', null],
      ['h', Buffer.from([0])],
    ],
  }));
  await openTestStore(clickhouse, {
    source: 'edge_logs',
    topic: TOPIC,
    partition: 1,
    retentionDays: 60,
    maxEventBytes: 2_000,
  }).writeBatch({ evaluatedAt: now, records });
}

const rollupContext = (clickhouse: ClickHouse): Context => ({
  clickhouse,
  settings: readSettings({}),
  logger: testLogger,
  metrics: createRollupMetrics(createRegistry()),
  clock: Date.now,
  engineClock: () => Promise.resolve(Date.now()),
  wait: () => Promise.resolve(),
});

function replay(
  dataDir: string,
  schemasDir: string,
  step?: ReplayStep,
): Promise<{ readonly signal: string | null; readonly code: number | null; readonly output: string }> {
  return new Promise((resolve) => {
    const child = spawn(
      process.execPath,
      [
        fileURLToPath(new URL('replay-process.ts', import.meta.url)),
        JSON.stringify({ dataDir, topic: TOPIC, step, schemasDir }),
      ],
      { stdio: ['ignore', 'pipe', 'inherit'], env: { ...process.env, ...COMPILE_CACHE } },
    );
    let output = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
    child.once('close', (code, signal) => resolve({ code, signal, output }));
  });
}

test('killed at every step and repeated: each letter once', async () => {
  const folder = temporaryFolder();
  const schemasDir = join(folder.path, 'schemas');
  mkdirSync(schemasDir);
  writeFileSync(join(schemasDir, 'newer.avsc'), JSON.stringify(newer));
  try {
    let clickhouse = await open(folder.path);
    await beginToday(rollupContext(clickhouse));
    await admitNew(rollupContext(clickhouse));
    await makeLetters(clickhouse);
    expect((await listDeadLetters(clickhouse, { topic: TOPIC, open: true })).map((l) => l.reason)).toEqual(
      LETTERS.map((l) => l.reason),
    );
    await clickhouse.close();
    for (const step of replaySteps)
      expect(await replay(folder.path, schemasDir, step), step).toMatchObject({ signal: 'SIGKILL' });
    expect(await replay(folder.path, schemasDir)).toMatchObject({ code: 0 });
    const again = await replay(folder.path, schemasDir);
    expect(JSON.parse(again.output)).toEqual({
      not_an_event: 1,
      malformed_json: 1,
      malformed_avro: 1,
      missing_project: 1,
      bad_timestamp: 1,
    });

    clickhouse = await open(folder.path);
    const select = async <T>(sql: string): Promise<T[]> =>
      rows<T>(await clickhouse.read({ sql, format: 'JSONEachRow' }));
    expect(
      await select(
        'SELECT toUInt32(kafka_offset) AS offset, toUInt32(count()) AS rows FROM edge_logs WHERE kafka_partition = 1 GROUP BY offset ORDER BY offset',
      ),
    ).toEqual(LETTERS.flatMap((l, offset) => (l.becomesRow ? [{ offset, rows: 1 }] : [])));
    // what was killed between raw and its views is the rollup service's work: the replay that finished it has asked for
    // it
    expect(await repairOpen(rollupContext(clickhouse))).toBe(0);
    expect(
      await select(
        `SELECT toUInt32(sum(requests)) AS requests FROM api_requests WHERE width = 3600 AND ref = '${REF}'`,
      ),
    ).toEqual([{ requests: ROWS - 1 }]);
    expect((await listDeadLetters(clickhouse, { topic: TOPIC, open: true })).map((l) => l.offset)).toEqual(
      LETTERS.flatMap((l, offset) => (l.becomesRow ? [] : [String(offset)])),
    );
    expect(await listDeadLetters(clickhouse, { topic: TOPIC, reason: 'too_large' })).toMatchObject([
      { replayed_at: expect.stringMatching(/^\d{4}-/) as string },
    ]);
    for (const [offset, { value, reason }] of LETTERS.entries()) {
      const letter = await readDeadLetter(clickhouse, { topic: TOPIC, partition: 1, offset: String(offset) });
      expect({
        reason: letter?.reason,
        value: letter?.record.value,
        key: letter?.record.key,
        headers: letter?.record.headers,
      }).toEqual({
        reason,
        value,
        key: Buffer.from([offset, 0xff]),
        headers: [
          ['h', null],
          ['h', Buffer.from([0])],
        ],
      });
    }
    const { ok, faults, partitions } = await reconcile(clickhouse, 3650);
    expect({ ok, faults }).toEqual({ ok: true, faults: [] });
    expect(partitions).toMatchObject([
      { consumed: LETTERS.length, stored: ROWS, dead_lettered: LETTERS.length - ROWS, replayed: ROWS, skipped: 0 },
    ]);
    await clickhouse.close();
  } finally {
    folder.remove();
  }
});
