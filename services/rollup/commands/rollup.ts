import { oneOfActions } from '../../../common/command/arguments.ts';
import { UsageError, type Command } from '../../../common/command/command.ts';
import { systemClock } from '../../../common/clock.ts';
import { rebuild } from '../audit.ts';
import { affectedPeriods } from '../build.ts';
import { readRollups, type Rollup } from '../catalogue.ts';
import { createRollupMetrics } from '../metrics.ts';
import { readShape } from '../shape.ts';
import { DEFAULT_TIMING, isoTime, type Workshop } from '../workshop.ts';

type Args = { readonly action: 'status' } | { readonly action: 'rebuild'; readonly from: number; readonly to: number; readonly rollup: string | null };

interface Rebuilt {
  readonly rollup: string;
  readonly periods: number;
  readonly built: number;
  /** starts of periods that could not be built, because batches of theirs are not finished */
  readonly left: readonly string[];
}

type Result = { readonly rollups: readonly (Omit<Rollup, 'complete_from' | 'built_from' | 'tables'> & { readonly complete: boolean })[] } | { readonly rebuilt: readonly Rebuilt[] };

/** How long to wait for unfinished batches of a period, milliseconds. */
const PATIENCE_MS = 120_000;
/** Unix seconds; 2106 is where ClickHouse's DateTime ends. */
const TIME_SCHEMA = { type: 'integer', minimum: 0, maximum: 4_291_747_200 };
const TIME = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d)?Z)?$/;

function readTime(name: string, value: unknown): number {
  const seconds = typeof value === 'string' && TIME.test(value) ? Date.parse(value) / 1000 : Number.NaN;
  if (!Number.isInteger(seconds)) throw new UsageError(`--${name} is a day or an instant in UTC, such as 2026-03-01 or 2026-03-01T09:00:00Z`);
  return seconds;
}

export const rollupCommand: Command<Args, Result> = {
  name: 'rollup',
  help: `npm run rollup                       the service: owns the schema, history, audit and retention of rollups
npm run rollup -- status             what each rollup holds, and whether it equals the raw table
npm run rollup -- rebuild --from 2026-03-01 --to 2026-03-02 [--rollup NAME]
                                     builds from the raw tables, anew, all that events of that time went into; answers stay right meanwhile`,
  args: oneOfActions('action', {
    status: {},
    rebuild: { properties: { from: TIME_SCHEMA, to: TIME_SCHEMA, rollup: { type: 'string', pattern: '^[a-z0-9_]{1,100}$', nullable: true } }, required: ['from', 'to', 'rollup'] },
  }),
  options: { from: { type: 'string' }, to: { type: 'string' }, rollup: { type: 'string' } },

  readArgs(values, [action, ...rest]) {
    if (rest.length > 0 || (action !== 'status' && action !== 'rebuild')) throw new UsageError('status or rebuild is wanted');
    if (action === 'status') return { action };
    const [from, to] = [readTime('from', values['from']), readTime('to', values['to'])];
    if (from >= to) throw new UsageError('--from has to be before --to');
    return { action, from, to, rollup: typeof values['rollup'] === 'string' ? values['rollup'] : null };
  },

  async run({ clickhouse, settings, logger }, args) {
    if (args.action === 'rebuild' && args.from >= args.to) throw new UsageError('from has to be before to');
    const rollups = await readRollups(clickhouse);
    if (args.action === 'status') {
      return { rollups: rollups.filter((r) => r.state !== 'retired').map(({ complete_from: _c, built_from: _b, tables: _t, ...shown }) => ({ ...shown, complete: shown.covered_from === 0 })) };
    }
    const chosen = rollups.filter((r) => r.state === 'serving' && (args.rollup === null || r.name === args.rollup));
    if (chosen.length === 0) throw new UsageError(`there is no complete rollup ${args.rollup ?? ''}`.trimEnd());
    const workshop: Workshop = {
      clickhouse, settings, clock: systemClock, timing: DEFAULT_TIMING, metrics: createRollupMetrics(undefined),
      // a line per period, also where only warnings are wanted
      logger: logger.child({}, { level: 'info' }),
      wait: (ms) => new Promise((resolve) => { setTimeout(resolve, ms); }),
    };
    const rebuilt: Rebuilt[] = [];
    for (const rollup of chosen) {
      const periods = await affectedPeriods(workshop, await readShape(clickhouse, rollup), args.from, args.to);
      const { built, left } = await rebuild(workshop, rollup, periods, PATIENCE_MS);
      rebuilt.push({ rollup: rollup.name, periods: periods.length, built, left: left.map(isoTime) });
    }
    return { rebuilt };
  },

  print(result) {
    if ('rebuilt' in result) {
      return result.rebuilt.map((r) => `${r.rollup}: ${r.built} of ${r.periods} periods built anew${r.left.length === 0 ? '' : `; batches are not finished in ${r.left.join(', ')}: start ingest and repeat`}\n`).join('');
    }
    return result.rollups.map((r) => {
      const covered = r.complete ? 'all events' : `events from ${isoTime(r.covered_from)} on, the raw table before that`;
      const audit = r.audited_to === 0 ? 'not compared yet' : r.differences === 0 ? `equals the raw table, compared up to ${isoTime(r.audited_to)}` : `${r.differences} minutes DIFFER from the raw table, from ${isoTime(r.differs_from ?? 0)} on`;
      return `${r.name} version ${r.version} (${r.state}): ${covered}; ${audit}\n`;
    }).join('');
  },

  exitCode: (result) => ('rebuilt' in result ? (result.rebuilt.every((r) => r.left.length === 0) ? 0 : 1) : result.rollups.every((r) => r.differences === 0) ? 0 : 1),
};
