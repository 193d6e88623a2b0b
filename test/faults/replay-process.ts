import { select, type ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { openEmbedded } from '../../common/clickhouse/embedded/embedded.ts';
import { systemClock } from '../../common/clock.ts';
import { readSettings } from '../../common/config/settings.ts';
import { createLogger } from '../../common/logger.ts';
import { listDeadLetters, replayAll } from '../../services/ingest/operate/dead-letters.ts';
import { createDecoders } from '../../services/ingest/service.ts';
import type { ReplayStep } from './replay.test.ts';

/**
 * The child process of replay.test.ts: replays all letters of the topic as the command does, kills itself at a step,
 * else says on stdout what became of them.
 */
const { dataDir, topic, step, schemasDir } = JSON.parse(process.argv[2]!) as {
  dataDir: string;
  topic: string;
  step?: ReplayStep;
  schemasDir: string;
};
const clickhouse = await openEmbedded({ dataDir, logger: createLogger('fatal') });
const settings = readSettings({ AVRO_SCHEMAS_DIR: schemasDir });
const { replayed } = await replayAll(
  {
    clickhouse: withKill(clickhouse),
    decoders: createDecoders(settings),
    retentionDays: 365,
    maxEventBytes: settings.MAX_EVENT_BYTES,
    rawAvroTopics: [],
    clock: systemClock,
  },
  { topic },
);
await clickhouse.close();
process.stdout.write(JSON.stringify(replayed));

function reached(at: ReplayStep): void {
  if (at === step) process.kill(process.pid, 'SIGKILL');
}

function withKill(engine: ClickHouse): ClickHouse {
  return {
    ...engine,
    insertRows: async (of) => {
      if (of.table === 'dead_letter_replays') {
        await engine.insertRows(of);
        return reached('after_announcement');
      }
      reached('before_insert');
      const inserting = engine.insertRows(of);
      if (step === 'in_insert') await untilRawIsThere();
      reached('in_insert');
      await inserting;
      reached('after_insert');
    },
    execute: async (statement) => {
      const isMark = statement.sql.includes('true, evaluated_at');
      const executing = engine.execute(statement);
      if (isMark) setTimeout(reached, 1, 'in_mark');
      await executing;
      if (isMark) reached('after_mark');
    },
  };
}

/** The row is in the raw table, and its views are perhaps not filled. */
async function untilRawIsThere(): Promise<void> {
  const count = async (): Promise<number> =>
    (await select<{ n: number }>(clickhouse, 'SELECT toUInt32(count()) AS n FROM edge_logs'))[0]!.n;
  const before = (await listDeadLetters(clickhouse, { topic })).filter((l) => l.replayed_at !== null).length;
  while ((await count()) <= before);
}
