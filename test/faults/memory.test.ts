import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { afterEach, expect, test } from 'vitest';
import { temporaryFolder } from '../harness/clickhouse.ts';
import { createTopic, produce } from '../harness/kafka.ts';
import { endIngestChildren, startIngestChild, waitForLog, type NodeFlags } from './ingest-child.ts';
import { createWorld, type World } from './ledger.ts';

// Guarantee: memory is bounded in decompressed bytes. Neither what compresses a hundredfold, nor events of 5 MB, nor a
// record batch of 50 MB, which the broker sends whole whatever a fetch asks for, brings the process (with the embedded
// engine) to 1 GB resident.

const LIMIT_BYTES = 1024 ** 3;
const FLAGS = flagsOf('start');

afterEach(endIngestChildren);

test('300 MB that are 3 MB in Kafka, and 60 MB in events of 5 MB', async () => {
  const world = await createWorld();
  const topic = world.topicOf('edge_logs');
  const filler = 'abcdefgh'.repeat(2_500);
  for (let round = 0; round < 15; round++) {
    const value = `{"id":"${round}","project":"abc","event_message":"${filler}"}`;
    const reports = await produce(
      Array.from({ length: 1_000 }, (_, i) => ({ topic, partition: i % 2, value })),
      { compression: round % 2 === 0 ? 'zstd' : 'gzip' },
    );
    for (const partition of [0, 1])
      world.acknowledged(
        'edge_logs',
        partition,
        reports.filter((r) => r.partition === partition).map((r) => Number(r.offset)),
        value,
        'row',
      );
  }
  for (let i = 0; i < 12; i++) {
    const value = `{"project":"abc","event_message":"${String(i).repeat(5_000_000)}"}`
      .slice(0, 5_000_034)
      .replace(/"?\}?$/, '"}');
    const [report] = await produce([{ topic: world.topicOf('auth_logs'), partition: i % 2, value }]);
    world.acknowledged('auth_logs', i % 2, [Number(report!.offset)], value, 'row');
  }
  expect(await peakOf(world)).toBeLessThan(LIMIT_BYTES);
});

test('a fetch of 50 MB: two record batches of 50 events of 1 MB', async () => {
  const world = await createWorld({ missing: ['postgres_logs'] });
  const topic = await createTopic(
    '',
    { partitions: 2, config: { 'max.message.bytes': String(64 * 1024 ** 2) } },
    world.topicOf('postgres_logs'),
  );
  const value = `{"project":"abc","event_message":"${randomBytes(750_000).toString('base64')}"}`;
  for (const partition of [0, 1]) {
    const reports = await produce(Array.from({ length: 50 }, () => ({ topic, partition, value })));
    world.acknowledged(
      'postgres_logs',
      partition,
      reports.map((r) => Number(r.offset)),
      value,
      'row',
    );
  }
  expect(await peakOf(world)).toBeLessThan(LIMIT_BYTES);
});

/** What a script of package.json gives Node: `NAME=value ... exec node --flag ... <file>`. */
function flagsOf(script: string): NodeFlags {
  const { scripts } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
    scripts: Record<string, string>;
  };
  const words = scripts[script]!.split(' ');
  const env = words.filter((word) => word.startsWith('MALLOC_')).map((word) => word.split('=') as [string, string]);
  const execArgv = words.filter((word) => word.startsWith('--'));
  expect([env.length, execArgv.length], scripts[script]).toEqual([1, 1]);
  return { execArgv, env: Object.fromEntries(env) };
}

/** Bytes resident at most while it takes in the world, which must be exact after it. */
async function peakOf(world: World): Promise<number> {
  const folder = temporaryFolder();
  try {
    const env = { ...world.env, DATA_DIR: folder.path };
    const child = startIngestChild({ env, sessionTimeoutMs: 10_000, flags: FLAGS });
    await world.finished(child.reader, 60_000).catch((cause: unknown) => {
      throw new Error(`${String(cause)}: ${child.log().slice(-3_000)}`, { cause });
    });
    expect(await child.stop()).toMatchObject({ code: 0 });
    const peak = Number((await waitForLog(child, 'ended', 1_000))['max_rss_kilobytes']) * 1024;
    console.log(`peak ${Math.round(peak / 1e6)} MB resident`);
    const reader = startIngestChild({ env, sessionTimeoutMs: 10_000 });
    await reader.running;
    await world.expectExact(reader.reader);
    expect(await reader.stop()).toMatchObject({ code: 0 });
    return peak;
  } finally {
    folder.remove();
  }
}
