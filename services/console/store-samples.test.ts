import { expect, test } from 'vitest';
import { refusal } from '../../common/clickhouse/errors.ts';
import { createHistory } from './history.ts';
import { createStoreSamples } from './store-samples.ts';
import { STEP_SECONDS } from './wire.ts';

const NOW = Date.parse('2026-01-01T12:00:00Z');
const STEP = NOW / 1000 / STEP_SECONDS;

/** Samples of an engine that answers each statement with the rows that `answer` gives. */
function samplesOf(answer: (sql: string, params: Readonly<Record<string, unknown>>) => readonly object[]) {
  const history = createHistory();
  const read = async ({ sql, params = {} }: { sql: string; params?: Readonly<Record<string, unknown>> }) => ({
    body: Buffer.from(
      answer(sql, params)
        .map((row) => JSON.stringify(row))
        .join('\n'),
    ),
  });
  const engine = { read, shards: [] } as unknown as Parameters<typeof createStoreSamples>[0];
  return { history, samples: createStoreSamples(engine, history) };
}

test('rows that appear late, or by a clock behind ours, are counted within a minute', async () => {
  let written = 0;
  const { history, samples } = samplesOf((sql, params) =>
    sql.includes('newest_ms') && Number(params['from']) <= (STEP - 5) * STEP_SECONDS
      ? [{ at: STEP - 5, topic: 't', source: 'edge_logs', events: written, bad: 0, newest_ms: NOW, delay_ms: 1 }]
      : [],
  );
  await samples.refresh(NOW);
  written = 7;
  await samples.refresh(NOW + 2_000);
  await samples.refresh(NOW + 60_000);
  expect(history.get('events:t', STEP - 5)).toBe(7);
});

test('if the whole hour takes too long, the last steps are read all the same', async () => {
  let isSlow = false;
  const { history, samples } = samplesOf((sql, params) => {
    if (!sql.includes('newest_ms')) return [];
    if (isSlow && Number(params['from']) < (STEP - 100) * STEP_SECONDS) throw refusal(159, 'Timeout exceeded');
    return [{ at: STEP + 6, topic: 't', source: 'edge_logs', events: 7, bad: 0, newest_ms: NOW, delay_ms: 1 }];
  });
  await samples.refresh(NOW);
  isSlow = true;
  await expect(samples.refresh(NOW + 60_000)).rejects.toThrow('Timeout');
  await samples.refresh(NOW + 62_000);
  expect(history.get('events:t', STEP + 6)).toBe(7);
});

test('totals that take too long leave the rest as it is, and are not asked for at once again', async () => {
  let asked = 0;
  const { samples } = samplesOf((sql) => {
    if (sql.includes('FROM paused_partitions')) return [{ topic: 't', partition: 3 }];
    if (!sql.includes('FROM dead_letter_replays')) return [];
    asked++;
    throw refusal(159, 'Timeout exceeded');
  });
  await samples.refresh(NOW);
  await samples.refresh(NOW + 1_000);
  expect(samples.facts.paused).toHaveLength(1);
  expect(asked).toBe(1);
  // not that there are none
  expect(samples.facts.totals).toBeNull();
});

test('a clock that is set back an hour holds nothing up', async () => {
  const asked: string[] = [];
  const { samples } = samplesOf((sql, params) => {
    if (sql.includes('FROM dead_letter_replays')) asked.push('totals');
    else if (sql.includes('FROM rollups')) asked.push('rollups');
    else if (sql.includes('newest_ms') && Number(params['from']) < (STEP - 400) * STEP_SECONDS)
      asked.push('whole hour');
    return [];
  });
  await samples.refresh(NOW);
  asked.length = 0;
  await samples.refresh(NOW - 3_600_000);
  expect(asked.toSorted()).toEqual(['rollups', 'totals', 'whole hour']);
  asked.length = 0;
  await samples.refresh(NOW - 3_600_000 + 1_000);
  expect(asked).toEqual([]);
});
