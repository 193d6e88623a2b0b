import type { ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { openEmbedded } from '../../common/clickhouse/embedded.ts';
import { systemClock } from '../../common/clock.ts';
import { readSettings } from '../../common/config/settings.ts';
import { createLogger } from '../../common/logger.ts';
import { replayAll } from '../../services/ingest/dead-letters.ts';
import { createDecoders } from '../../services/ingest/ingest.ts';
import type { ReplayStep } from './replay.test.ts';

/** The child process of replay.test.ts: replays all letters of the topic as the command does, kills itself at a step, else says on stdout what became of them. */
const { dataDir, topic, step, schemasDir } = JSON.parse(process.argv[2]!) as { dataDir: string; topic: string; step?: ReplayStep; schemasDir: string };
const clickhouse = await openEmbedded({ dataDir, logger: createLogger('fatal') });
const settings = readSettings({ AVRO_SCHEMAS_DIR: schemasDir });
const outcomes = await replayAll({ clickhouse: withKill(clickhouse), decoders: createDecoders(settings, systemClock), retentionDays: 365, maxEventBytes: settings.MAX_EVENT_BYTES, clock: systemClock }, { topic });
await clickhouse.close();
process.stdout.write(JSON.stringify(outcomes));

function reached(at: ReplayStep): void {
  if (at === step) process.kill(process.pid, 'SIGKILL');
}

function withKill(engine: ClickHouse): ClickHouse {
  return {
    ...engine,
    insert: async (insert) => {
      // the judgement before it writes nothing
      const writes = !insert.sql.startsWith('INSERT INTO FUNCTION null');
      if (writes) reached('before_insert');
      const inserting = engine.insert(insert);
      if (writes) setTimeout(reached, 3, 'in_insert');
      await inserting;
      if (writes) reached('after_insert');
    },
    execute: async (statement) => {
      const marking = engine.execute(statement);
      setTimeout(reached, 1, 'in_mark');
      await marking;
      reached('after_mark');
    },
  };
}
