import { expect, test } from 'vitest';
import type { Read, Statement } from '../../common/clickhouse/clickhouse.ts';
import { createLogger } from '../../common/logger.ts';
import { createRegistry } from '../../common/metrics.ts';
import { createAudit } from './audit.ts';
import { statements } from './period/catalogue.ts';
import type { Context } from './period/context.ts';
import { DAY, HOUR, MINUTE } from './period/time.ts';
import { createRollupMetrics } from './period/metrics.ts';
import type { Difference } from './repairs.ts';

const DAY_BEGIN = 20_000 * DAY;
const NOON = DAY_BEGIN + 12 * HOUR;
const COLUMNS = [
  ['period', 'DateTime'],
  ['width', 'UInt32'],
  ['at', "DateTime64(6, 'UTC')"],
  ['count', 'SimpleAggregateFunction(sum, UInt64)'],
].map(([name, type]) => ({ name, type }));

/**
 * An audit of one rollup, of which these versions serve, at noon. Each look finds differences in the next of these lists
 * of minutes, of the last period where no other is named.
 */
function auditWith(
  looks: (number | Difference)[][],
  isInFlight: () => boolean = () => false,
  versions = [1],
  shards?: string[],
) {
  const repairs: unknown[] = [];
  const spans: string[] = [];
  /** when closed periods were compared */
  const nights: number[] = [];
  const rollup = { name: 'r', source: 'edge_logs', widest: HOUR, state: 'serving', pending: [] };
  /** shards that cannot be reached */
  const lost = new Set<string>();
  /** the shards of each look, and of each comparison of closed periods */
  const [compared, daysCompared]: string[][] = [[], []];
  const rowsOf = (sql: string, shard = ''): readonly object[] => {
    if (sql === statements.rollups) return versions.map((version) => ({ ...rollup, version }));
    if (sql === statements.tables) return [{ name: 'r_v1_mv', select: 'SELECT * FROM edge_logs' }];
    if (sql === statements.columns) return COLUMNS;
    if (sql === statements.horizon) return [{ horizon: 0 }];
    if (sql === statements.newestPeriod) return [{ begin: DAY_BEGIN }];
    if (sql === statements.closedPeriods) {
      nights.push(time.now);
      daysCompared!.push(shard);
      return [];
    }
    if (sql === statements.unfinishedBatches) return isInFlight() ? [{}] : [];
    if (sql.startsWith('SELECT count() AS rows')) return [{ rows: 1 }];
    compared!.push(shard);
    spans.push(/at >= toDateTime64\((\d+), .*at < toDateTime64\((\d+),/.exec(sql)!.slice(1).join('-'));
    return (looks.shift() ?? []).map((at) => (typeof at === 'number' ? { period: DAY_BEGIN, minute: at } : at));
  };
  const time = { now: NOON, ahead: 0 };
  const registry = createRegistry();
  const engine = (shard?: string) => ({
    shard,
    read: async ({ sql }: Read) => {
      if (lost.has(shard ?? '')) throw new Error(`${shard} is lost`);
      const rows = rowsOf(sql, shard);
      return { body: Buffer.from(rows.map((row) => JSON.stringify(row)).join('\n')) };
    },
    execute: async ({ params }: Statement) => void repairs.push([params?.['from'], params?.['to']]),
  });
  const context = {
    clickhouse: { ...engine(), shards: shards?.map(engine) },
    settings: { ROLLUP_AUDIT_DAYS: 1 },
    logger: createLogger('silent'),
    metrics: createRollupMetrics(registry),
    clock: () => (time.now + time.ahead) * 1000,
    engineClock: async () => time.now * 1000,
  } as unknown as Context;
  const auditedTo = async (): Promise<number> =>
    Number(/^sluice_rollup_audited_to_seconds\{.*\} (\S+)$/m.exec(await registry.metrics())![1]);
  const found = { repairs, spans, nights, compared: compared!, daysCompared: daysCompared! };
  return { audit: createAudit(context), ...found, time, lost, auditedTo };
}

test('a difference is repaired with its whole hour, also in the first minute, which stands for the bucket of the hour', async () => {
  for (const minutes of [[NOON - HOUR], [NOON - HOUR + 5 * MINUTE], [NOON - HOUR, NOON - MINUTE]]) {
    const { audit, repairs } = auditWith([minutes, minutes]);
    expect(await audit()).toBe(1);
    expect(repairs).toEqual([[minutes[0], NOON]]);
  }
});

test('a difference counts if two looks agree on it', async () => {
  const [a, b, c] = [NOON - 50 * MINUTE, NOON - 30 * MINUTE, NOON - 10 * MINUTE];
  const { audit, repairs } = auditWith([
    [a, b],
    [b, c],
  ]);
  expect(await audit()).toBe(1);
  expect(repairs).toEqual([[b, NOON]]);
  for (const second of [b, { period: DAY_BEGIN - DAY, minute: a }]) {
    const calm = auditWith([[a], [second]]);
    expect([await calm.audit(), calm.repairs]).toEqual([0, []]);
  }
});

test('differences in several periods are one repair each', async () => {
  const late = [NOON - 3 * HOUR, NOON - 2 * HOUR].map((minute) => ({ period: DAY_BEGIN - DAY, minute }));
  const looks = [NOON - HOUR, ...late];
  const { audit, repairs } = auditWith([looks, looks]);
  expect(await audit()).toBe(2);
  expect(repairs).toEqual([
    [NOON - HOUR, NOON],
    [NOON - 3 * HOUR, NOON - HOUR],
  ]);
});

test('minutes with batches in flight are compared again in the next round, others are not', async () => {
  let isInFlight = true;
  const { audit, repairs, spans, time } = auditWith([[NOON - HOUR]], () => isInFlight);
  expect(await audit()).toBe(0);
  isInFlight = false;
  time.now = NOON + HOUR;
  await audit();
  time.now = NOON + 2 * HOUR;
  await audit();
  const to = NOON - 2 * MINUTE;
  expect(spans).toEqual([`${to - 3 * HOUR}-${to}`, `${to - 2 * HOUR}-${to + HOUR}`, `${to + HOUR}-${to + 2 * HOUR}`]);
  expect(repairs).toEqual([]);
});

test('each of two versions that serve is compared', async () => {
  const { audit, spans } = auditWith([], undefined, [1, 2]);
  await audit();
  const to = NOON - 2 * MINUTE;
  expect(spans).toEqual([`${to - 3 * HOUR}-${to}`, `${to - 3 * HOUR}-${to}`]);
});

test('each shard is compared by itself', async () => {
  const { audit, compared, repairs } = auditWith([[], [NOON - HOUR], [NOON - HOUR]], undefined, [1], ['s1', 's2']);
  expect(await audit()).toBe(1);
  expect([compared, repairs]).toEqual([['s1', 's2', 's2'], [[NOON - HOUR, NOON]]]);
});

test.each([[['s1', 's2']], [['s2', 's1']]])(
  'while a shard cannot be reached, the other one is compared every hour: %j',
  async (shards) => {
    const { audit, compared, spans, time, lost, auditedTo } = auditWith([], undefined, [1], shards);
    lost.add('s2');
    for (time.now of [NOON, NOON + 5, NOON + 10 * MINUTE]) await expect(audit()).rejects.toThrow('s2 is lost');
    expect(compared).toEqual(['s1']);
    for (time.now of [NOON + HOUR, NOON + HOUR + 5]) await expect(audit()).rejects.toThrow('s2 is lost');
    expect(compared).toEqual(['s1', 's1']);
    const to = NOON - 2 * MINUTE;
    expect(await auditedTo()).toBe(to);
    lost.clear();
    time.now = NOON + HOUR + 10;
    expect(await audit()).toBe(0);
    expect(compared).toEqual(['s1', 's1', 's2']);
    expect(spans.slice(1)).toEqual([`${to}-${to + HOUR}`, `${to - 2 * HOUR}-${to + HOUR}`]);
    expect(await auditedTo()).toBe(to + HOUR);
  },
);

test.each([[['s1', 's2']], [['s2', 's1']]])(
  'while a shard cannot be reached, the closed periods of the other one are compared once a night: %j',
  async (shards) => {
    const { audit, daysCompared, time, lost } = auditWith([], undefined, [1], shards);
    await audit();
    lost.add('s2');
    const twoAtNight = DAY_BEGIN + DAY + 2 * HOUR;
    for (time.now of [NOON + HOUR, NOON + HOUR + 5, twoAtNight, twoAtNight + 5])
      await expect(audit()).rejects.toThrow('s2 is lost');
    expect(daysCompared).toEqual(['s1', 's1']);
    lost.clear();
    for (time.now of [twoAtNight + 10, twoAtNight + 15]) await audit();
    expect(daysCompared).toEqual(['s1', 's1', 's2']);
  },
);

test('batches in flight on one shard are no reason to compare another one again', async () => {
  let isInFlight = true;
  const { audit, spans, time, auditedTo } = auditWith([[], [NOON - HOUR]], () => isInFlight, [1], ['s1', 's2']);
  await audit();
  isInFlight = false;
  time.now = NOON + HOUR;
  await audit();
  const to = NOON + HOUR - 2 * MINUTE;
  expect(spans.slice(2)).toEqual([`${to - HOUR}-${to}`, `${to - 3 * HOUR}-${to}`]);
  expect(await auditedTo()).toBe(to);
});

test('closed periods are compared an hour after the first round, then every night', async () => {
  const { audit, nights, time } = auditWith([]);
  const twoAtNight = DAY_BEGIN + DAY + 2 * HOUR;
  const rounds = [NOON, NOON + HOUR - 1, NOON + HOUR, NOON + 5 * HOUR, twoAtNight - 1, twoAtNight, twoAtNight + HOUR];
  for (time.now of rounds) await audit();
  expect(nights).toEqual([NOON + HOUR, twoAtNight]);
});

test('a service that starts after 23:00 compares at night, when batches of the last day are finished', async () => {
  const twoAtNight = DAY_BEGIN + DAY + 2 * HOUR;
  for (const start of [twoAtNight - 3 * HOUR, twoAtNight - HOUR - 1, twoAtNight - MINUTE]) {
    const { audit, nights, time } = auditWith([]);
    for (time.now of [start, start + HOUR, twoAtNight].filter((t) => t <= twoAtNight)) await audit();
    expect(nights).toEqual([twoAtNight]);
  }
});

test('a service that is restarted at that hour compares an hour later', async () => {
  const { audit, nights, time } = auditWith([]);
  const twoAtNight = DAY_BEGIN + DAY + 2 * HOUR;
  for (time.now of [twoAtNight, twoAtNight + HOUR]) await audit();
  expect(nights).toEqual([twoAtNight + HOUR]);
});

test('a clock that is ahead for a moment, ours or that of the whole host, puts no comparison off', async () => {
  for (const [host, ours] of [
    [0, 30 * DAY],
    [30 * DAY, 0],
  ] as const) {
    const { audit, spans, nights, time, auditedTo } = auditWith([]);
    [time.now, time.ahead] = [NOON + host, ours];
    await audit();
    [time.now, time.ahead] = [NOON + HOUR, 0];
    await audit();
    const to = NOON + HOUR - 2 * MINUTE;
    expect(spans.at(-1)!.split('-')[1]).toBe(String(to));
    expect(await auditedTo()).toBe(to);
    const twoAtNight = DAY_BEGIN + DAY + 2 * HOUR;
    for (time.now of [twoAtNight, twoAtNight + HOUR]) await audit();
    expect(nights).toContain(twoAtNight);
  }
});

test('where no comparison succeeds, the time up to which minutes are compared is that of the first attempt', async () => {
  const { audit, time, auditedTo } = auditWith([[NOON - HOUR], [NOON - HOUR]], () => true);
  for (time.now of [NOON, NOON + 5 * HOUR]) await audit();
  expect(await auditedTo()).toBe(NOON - 2 * MINUTE);
});
