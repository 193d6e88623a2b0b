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
  const events: string[] = [];
  const logger = pino(
    { level: 'debug' },
    { write: (line) => void events.push((JSON.parse(line) as { msg: string }).msg) },
  );
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
  const of = (event: string): number => events.filter((e) => e === event).length;
  try {
    await waitFor(() => of('partition_taken') === 108, 60_000, 'every partition is taken');
    expect(of('clickhouse_unavailable')).toBe(0);
  } finally {
    await ingest.stop();
  }
});
