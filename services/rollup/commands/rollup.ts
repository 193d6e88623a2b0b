import { setTimeout as sleep } from 'node:timers/promises';
import { select, type Reader } from '../../../common/clickhouse/clickhouse.ts';
import { systemClock } from '../../../common/clock.ts';
import { form, type Command } from '../../../common/command/command.ts';
import { UsageError } from '../../../common/errors.ts';
import { engineClock, readRollups, statements, type Rollup } from '../period/catalogue.ts';
import { isLasting, type Context } from '../period/context.ts';
import { isoTime } from '../period/time.ts';
import { tableName } from '../period/definition.ts';
import { createRollupMetrics } from '../period/metrics.ts';
import { readOpenRepairs, repairOpen, requestRepair, type Repair } from '../repairs.ts';

type Args =
  | { readonly action: 'status' }
  | {
      readonly action: 'rebuild';
      readonly from: number;
      readonly to: number;
      readonly rollup: string | null;
      readonly acceptLoss: boolean;
    };

interface Rebuilt {
  readonly rollup: string;
  readonly periods: number;
  readonly built: number;
  /** periods that could not be built yet, and why; the service continues with them */
  readonly left: readonly { readonly period: string; readonly outcome: Repair['outcome'] }[];
}

type Result = Awaited<ReturnType<typeof readStatus>> | { readonly rebuilt: readonly Rebuilt[] };

async function readStatus(clickhouse: Reader, rollups: readonly Rollup[]) {
  return {
    rollups: rollups.map(({ widest: _, from_raw: __, ...rollup }) => ({
      ...rollup,
      pending: rollup.pending.map(isoTime),
    })),
    repairs: (await readOpenRepairs(clickhouse)).map(({ requested_at: _, accept_loss: __, ...repair }) => ({
      ...repair,
      period: isoTime(repair.period),
      from: isoTime(repair.from),
      to: isoTime(repair.to),
    })),
  };
}

/** Only the service expires: its retentions may be longer than those of the process that runs the command. */
const EXPIRES_NOTHING = { ROLLUP_1M_RETENTION_DAYS: 3650, ROLLUP_1H_RETENTION_DAYS: 3650 };
/** How long to wait for open batches, milliseconds. */
const PATIENCE_MS = 120_000;
/** Unix seconds; ClickHouse's DateTime ends in 2106. */
const TIME_SCHEMA = { type: 'integer', minimum: 0, maximum: 4_291_747_200 };
const RETRY_MS = 2_000;
const TIME = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d)?Z)?$/;

function readTime(name: string, value: string): number {
  const seconds = TIME.test(value) ? Date.parse(value) / 1000 : Number.NaN;
  // Date.parse takes 30 February for 2 March
  if (!Number.isInteger(seconds) || !isoTime(seconds).startsWith(value.slice(0, 10)))
    throw new UsageError(`--${name} is a day or an instant in UTC, such as 2026-03-01 or 2026-03-01T09:00:00Z`);
  return seconds;
}

const WHY: Readonly<Record<Repair['outcome'], string>> = {
  '': 'not tried yet',
  built: 'built',
  unfinished: 'open batches or replays of dead letters: start ingest, which completes them',
  incomplete: 'raw has fewer rows than the ledger counts: see SluiceRollupSourceIncomplete in docs/runbook.md',
  busy: 'rows kept arriving',
  taken: 'another process builds it, or reads what a build replaced',
  failed: 'ClickHouse refused it: see rollup_work_failed in the log',
  differs: 'it still differs from raw after the rebuild: see rollup_repair_failed in the log',
};

export const rollupCommand: Command<Args, Result> = {
  name: 'rollup',
  about: `Without arguments, this runs the service, which keeps schema, history, repairs, audit and retention of rollups (npm run rollup); it takes --check-config.
  --from, --to    a day or an instant in UTC: 2026-03-01 or 2026-03-01T09:00:00Z
  --accept-loss   rebuilds even if raw has lost rows that the ledger counts; the rollup loses them too`,
  forms: {
    status: form({
      help: 'shows what each rollup holds, and open repairs',
      read: (): Args => ({ action: 'status' }),
    }),
    rebuild: form({
      help: 'rebuilds all buckets of that time from the raw tables; answers stay right meanwhile',
      options: {
        from: { value: 'TIME', isRequired: true },
        to: { value: 'TIME', isRequired: true },
        rollup: { value: 'NAME' },
        'accept-loss': {},
      },
      schema: {
        properties: {
          from: TIME_SCHEMA,
          to: TIME_SCHEMA,
          rollup: { type: 'string', pattern: '^[a-z0-9_]{1,100}$', nullable: true },
          acceptLoss: { type: 'boolean' },
        },
        required: ['from', 'to', 'rollup', 'acceptLoss'],
      },
      read(options): Args {
        const [from, to] = [readTime('from', options.from), readTime('to', options.to)];
        if (from >= to) throw new UsageError('--from must be before --to');
        const { rollup = null, 'accept-loss': acceptLoss } = options;
        return { action: 'rebuild', from, to, rollup, acceptLoss };
      },
    }),
  },

  async run({ clickhouse, settings, logger }, args) {
    if (args.action === 'rebuild' && args.from >= args.to) throw new UsageError('from must be before to');
    const rollups = (await readRollups(clickhouse)).filter((r) => r.state !== 'retired');
    if (args.action === 'status') return await readStatus(clickhouse, rollups);
    const chosen = rollups.filter((r) => r.state === 'serving' && (args.rollup === null || r.name === args.rollup));
    if (chosen.length === 0) throw new UsageError(`there is no complete rollup ${args.rollup ?? ''}`.trimEnd());
    const context: Context = {
      clickhouse,
      settings: { ...settings, ...EXPIRES_NOTHING },
      clock: systemClock,
      engineClock: () => engineClock(clickhouse),
      metrics: createRollupMetrics(undefined),
      // a line per period, even if the log level is warn
      logger: logger.child({}, { level: 'info' }),
      wait: (ms) => sleep(ms),
    };
    const { from, to } = args;
    const asked: { readonly rollup: Rollup; readonly periods: readonly number[] }[] = [];
    for (const rollup of chosen) {
      const { source } = rollup;
      const affected = await select<{ period: number }>(clickhouse, statements.affectedPeriods, {
        source,
        table: tableName(rollup),
        from,
        to,
      });
      const periods = affected.map((p) => p.period);
      for (const period of periods)
        await requestRepair(context, { source, period, from, to, reason: 'command', accept_loss: args.acceptLoss });
      asked.push({ rollup, periods });
    }
    const isAsked = (r: Repair): boolean =>
      r.from === from &&
      r.to === to &&
      asked.some(({ rollup, periods }) => rollup.source === r.source && periods.includes(r.period));
    const until = performance.now() + PATIENCE_MS;
    let left = (await readOpenRepairs(clickhouse)).filter(isAsked);
    while (left.length > 0 && performance.now() < until) {
      await repairOpen(context);
      left = (await readOpenRepairs(clickhouse)).filter(isAsked);
      if (left.length > 0 && left.every((r) => isLasting(r.outcome))) break;
      if (left.length > 0) await sleep(RETRY_MS);
    }
    return {
      rebuilt: asked.map(({ rollup, periods }) => {
        const open = left.filter((r) => r.source === rollup.source);
        return {
          rollup: rollup.name,
          periods: periods.length,
          built: periods.length - open.length,
          left: open.map((r) => ({ period: isoTime(r.period), outcome: r.outcome })),
        };
      }),
    };
  },

  print(result) {
    if ('rebuilt' in result) {
      return result.rebuilt
        .map(
          (r) =>
            `${r.rollup}: ${r.built} of ${r.periods} periods built${r.left.map((l) => `; ${l.period}: ${WHY[l.outcome]}`).join('')}\n`,
        )
        .join('');
    }
    const rollups = result.rollups.map(
      (r) =>
        `${r.name} version ${r.version} (${r.state}): ${r.pending.length === 0 ? 'all events' : `${r.pending.length} periods are pending, from ${r.pending[0]} on; answers take them from raw`}\n`,
    );
    const repairs = result.repairs.map(
      (r) => `rollups of ${r.source} await repair from ${r.from} to ${r.to} (${r.reason}): ${WHY[r.outcome]}\n`,
    );
    return [...rollups, ...repairs].join('');
  },

  exitCode(result) {
    const open = 'rebuilt' in result ? result.rebuilt.flatMap((r) => r.left) : result.repairs;
    return open.length === 0 ? 0 : 1;
  },
};
