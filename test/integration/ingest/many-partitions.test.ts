import { pino } from 'pino';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { readSettings } from '../../../common/config/settings.ts';
import { createRegistry } from '../../../common/metrics.ts';
import { sources } from '../../../common/sources.ts';
import { startIngest } from '../../../services/ingest/service.ts';
import { openTestClickHouse, type TestClickHouse } from '../../harness/clickhouse.ts';
import { testKafka, uniqueName } from '../../harness/kafka.ts';
import { waitFor } from '../../harness/wait-for.ts';

// Guarantee: a process takes however many partitions without more reads at a time than the engine lets wait.

let engine: TestClickHouse;
beforeAll(async () => {
  engine = await openTestClickHouse();
});
afterAll(() => engine.close());

test('108 partitions are taken, and nothing says that ClickHouse is unavailable', async () => {
  const suffix = uniqueName('many');
  interface Line {
    readonly msg: string;
    readonly topic: string;
    readonly partition: number;
  }
  const lines: Line[] = [];
  const logger = pino({ level: 'debug' }, { write: (line) => void lines.push(JSON.parse(line) as Line) });
  const ingest = await startIngest({
    clickhouse: engine.clickhouse,
    kafka: testKafka(),
    settings: readSettings({
      KAFKA_TOPICS: sources.map((s) => `${s.name}=${s.name}.${suffix}`).join(','),
      KAFKA_GROUP_ID: suffix,
      KAFKA_TOPIC_PARTITIONS: '12',
    }),
    logger,
    registry: createRegistry(),
  });
  /** partitions of which an event says something */
  const of = (event: string): number =>
    new Set(lines.filter((l) => l.msg === event).map((l) => `${l.topic} ${l.partition}`)).size;
  try {
    await waitFor(() => of('partition_taken') === 108, 60_000, 'every partition is taken');
    expect(of('clickhouse_unavailable')).toBe(0);
  } finally {
    await ingest.stop();
  }
});
