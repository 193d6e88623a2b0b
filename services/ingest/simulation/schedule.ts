import fc, { type Scheduler } from 'fast-check';
import { checkAccount, checkRollups } from './account.ts';
import { createClickHouse, type LedgerRow } from './clickhouse.ts';
import { createGroup, createLog, PARTITIONS, SESSION_MS, type Log } from './kafka.ts';
import { startProcess, type Mutation, type Process } from './process.ts';
import type { Row } from './tables.ts';
import { createWorld, type Counts } from './world.ts';

/** What happens from outside, and how often in proportion. */
const ACTIONS = {
  produce: 12,
  kill: 5,
  start: 5,
  sigstop: 4,
  wake: 4,
  pass_time: 4,
  cut_off: 2,
  heal: 2,
  stop: 2,
  clock_jump: 2,
  retention: 2,
  compaction: 1,
  topic_recreated: 3,
  log_truncated: 3,
  store_down: 1,
  store_up: 1,
  store_restart: 3,
  others_write: 4,
  schema_registered: 1,
  period_begins: 2,
  repair: 2,
  back_up: 2,
  snapshot: 1,
  group_deleted: 2,
  reset_to_earliest: 1,
  reset_to_end: 1,
  other_group: 4,
  restore: 4,
} as const;
type Action = keyof typeof ACTIONS;

export interface Scenario {
  /** of everything that is decided by chance while the schedule runs */
  readonly seed: number;
  readonly lingerMs: number;
  /** one process at a time, whose engine ends with it */
  readonly isEmbedded: boolean;
  /** stopped processes are woken before (or after) the last owner has caught up */
  readonly wakeFirst: boolean;
  /** each so many steps after the one before */
  readonly actions: readonly { readonly action: Action; readonly after: number; readonly size: number }[];
}

export const scenarios: fc.Arbitrary<Scenario> = fc.record({
  seed: fc.noShrink(fc.integer()),
  lingerMs: fc.constantFrom(0, 50),
  isEmbedded: fc.boolean(),
  wakeFirst: fc.boolean(),
  actions: fc.array(
    fc.record({
      action: fc.constantFrom(
        ...(Object.keys(ACTIONS) as Action[]).flatMap((a) => Array.from({ length: ACTIONS[a] }, () => a)),
      ),
      after: fc.oneof(fc.nat(12), fc.nat(120)),
      size: fc.nat(7),
    }),
    { minLength: 4, maxLength: 14, size: 'max' },
  ),
});

const DAY = 86_400_000;
const CLOCK_JUMPS = [-400 * DAY, -2 * 3_600_000, -300_000, -1_000, 1_000, 300_000, 2 * 3_600_000, 400 * DAY];

/** The last owner needs far fewer. */
const MAX_STEPS = 8_000;
const MAX_PROCESSES = 3;

/** The last owner does not finish. */
export class Hang extends Error {}

/** Runs one schedule; rejects when the invariant is broken or the last owner does not finish. */
export async function runSchedule(
  scheduler: Scheduler,
  scenario: Scenario,
  mutation: Mutation,
  counts: Counts,
  log?: (line: string) => void,
): Promise<void> {
  const { seed, lingerMs, isEmbedded, wakeFirst, actions } = scenario;
  const world = createWorld(scheduler, seed, counts, log);
  const logs = PARTITIONS.map((p) => createLog(world, p));
  const clickhouse = createClickHouse(world, logs);
  const groups = [createGroup(world, 'a'), createGroup(world, 'b')];
  let group = groups[0]!;
  const processes: Process[] = [];
  let steps = 0;
  let idle = 0;

  world.count('schedules');
  for (const l of logs) produce(l, 3);
  start();

  for (const { action, after, size } of actions) {
    for (let i = 0; i < after && world.pending() > 0; i++) await step();
    world.trace(`--- ${action}`, { size });
    act(action, size);
  }

  world.calm = true;
  world.trace('--- calm');
  clickhouse.setDown(false);
  for (const process of processes) process.heal();
  if (wakeFirst) for (const process of processes) process.wake();
  // the group that stays: the other one has no members any more, or it would wait for ever
  for (const process of processes) if (process.group !== group) process.kill();
  if (!processes.some((p) => p.state === 'running' && !p.isDraining && p.group === group)) start(true);
  const ends = logs.map((l) => {
    l.produce('event');
    return l.history.at(-1)!;
  });
  const isFinished = (): boolean => ends.every((event) => clickhouse.isStored(event));
  while (!isFinished()) await step();
  for (const process of processes) process.wake();
  while (world.pending() > 0) await step();
  checkAccount(logs, clickhouse);
  await settled(clickhouse.repair(false));
  checkRollups(clickhouse, clickhouse.late);
  // a build makes a period of what raw has, so there is nothing to compare; but no period may be refused for ever
  await settled(clickhouse.repair(true));
  if (clickhouse.refused.length > 0) throw new Error(`rollups of ${clickhouse.refused.join()} cannot be built`);

  async function step(): Promise<void> {
    if (++steps > MAX_STEPS) throw new Hang('the last owner does not finish');
    if (world.pending() === 0) {
      if (++idle > 40) throw new Hang('the last owner does not go on');
      passTime(SESSION_MS);
    }
    await world.step();
    world.check();
    world.count('steps');
  }

  async function settled(work: Promise<void>): Promise<void> {
    const state = { isDone: false };
    void (async () => {
      await work;
      state.isDone = true;
    })().catch(world.fail);
    while (!state.isDone) await step();
  }

  function start(always = false): void {
    if (!always && processes.filter((p) => p.state !== 'dead').length >= (isEmbedded ? 1 : MAX_PROCESSES)) return;
    if (isEmbedded) for (const process of processes) kill(process);
    const retentionDays = world.below(3) === 0 ? 7 : 90;
    processes.push(
      startProcess({
        world,
        logs,
        clickhouse,
        groups,
        group,
        name: `p${processes.length}`,
        lingerMs,
        isEmbedded,
        retentionDays,
        mutation,
      }),
    );
  }

  function kill(process: Process): void {
    process.kill();
    if (!isEmbedded) return;
    clickhouse.settle();
    clickhouse.restart();
  }

  function produce(to: Log, n: number): void {
    for (let i = 0; i < n; i++) {
      const kind = (['event', 'event', 'event', 'event', 'event', 'null', 'control', 'absent'] as const)[
        world.below(8)
      ]!;
      // that a log was cut is seen by the records at its new end, and that it was recreated by one that stands where
      // another one is stored; a null value looks like one that was skipped before
      const isSeen = isNoticed(to) || (to.isRecreated && proofOf(to) !== undefined && kind !== 'null');
      to.produce(isSeen ? kind : 'event');
    }
  }

  function passTime(ms: number): void {
    world.now += ms;
    for (const g of groups) g.tick();
  }

  /** the ledger's last record stands in the log, or the ledger has nothing */
  function isNoticed(of: Log): boolean {
    const end = clickhouse.ledgerEnd(of.partition);
    return end === undefined || isKnownByRecord(of, end);
  }

  function isKnownByRecord(of: Log, end: LedgerRow | undefined): boolean {
    if (end?.end === undefined) return false;
    const slot = of.slot(end.end.offset);
    return typeof slot === 'object' && slot.time === end.end.time && of.high > end.last;
  }

  /** The last offset at which the log has another record than the ledger knows of or the tables hold. */
  function proofOf(of: Log): number | undefined {
    const end = clickhouse.ledgerEnd(of.partition)?.end;
    const isAnother = (offset: number, time: number): boolean => {
      const slot = of.slot(offset);
      return typeof slot === 'object' && slot.time !== time;
    };
    return [
      ...(end !== undefined && isAnother(end.offset, end.time) ? [end.offset] : []),
      ...clickhouse
        .finished(of.partition)
        .flatMap(({ event }) => (isAnother(event.offset, event.time) ? [event.offset] : [])),
    ].toSorted((a, b) => b - a)[0];
  }

  /** What stands before this offset can be told from new records: one that is stored follows those past retention. */
  function isPrefixKnown(of: Log, to: number): boolean {
    const lastOf = (rows: readonly Row[]): number =>
      Math.max(-1, ...rows.map((r) => (of.has(r.event) && r.event.offset < to ? r.event.offset : -1)));
    return lastOf(clickhouse.expired) <= lastOf(clickhouse.finished(of.partition));
  }

  /** Every process is dead or stopped, and no request is on its way any more. */
  function everythingStops(stop: 'kill' | 'kill or sigstop'): void {
    for (const process of processes) {
      if (stop === 'kill' || world.below(2) === 0) process.kill();
      else process.sigstop();
    }
    passTime(2 * SESSION_MS + 1_000);
    clickhouse.settle();
  }

  function act(action: Action, size: number): void {
    const process = processes[size % processes.length]!;
    const of = logs[size % logs.length]!;
    const { partition } = of;
    switch (action) {
      case 'produce':
        // to both partitions: they share inserts
        for (const l of isEmbedded ? logs : [of]) produce(l, size + 1);
        return;
      case 'kill':
        return kill(process);
      case 'start':
        return start();
      case 'sigstop':
        return process.sigstop();
      case 'wake':
        return process.wake();
      case 'pass_time':
        return passTime((size + 1) * 3_000);
      case 'cut_off':
        return process.cut();
      case 'heal':
        return process.heal();
      case 'stop':
        return process.stop();
      case 'clock_jump':
        return process.skewClock(CLOCK_JUMPS[size]!);
      case 'retention': {
        // of a log that is another, the record by which that is seen must not be gone
        const to = Math.min(of.low + size, of.high, isNoticed(of) ? Infinity : (proofOf(of) ?? 0));
        return of.cutStart(to, clickhouse.isStored);
      }
      case 'compaction': {
        if (!isNoticed(of)) return;
        if (size > 4) return compactMarks(of);
        const offset = of.high - 2 - size;
        if (offset >= of.low) of.compact(offset, clickhouse.isStored);
        return;
      }
      case 'topic_recreated':
        // before its first batch is in the ledger, a recreated topic cannot be told from one whose group was deleted
        if (!isKnownByRecord(of, clickhouse.ledgerEnd(partition))) return;
        of.recreate(clickhouse.isStored);
        for (const g of groups) g.setCommitted(partition, undefined);
        return logChanged(of, 'topics recreated', size);
      case 'log_truncated': {
        const end = clickhouse.ledgerEnd(partition);
        if (!isKnownByRecord(of, end)) return;
        // only a cut that takes the ledger's last record with it is seen, whatever comes then (ARCHITECTURE.md, Limits)
        const to = Math.max(of.low, Math.min(of.high - 1 - size, end!.end!.offset));
        if (!isPrefixKnown(of, to)) return;
        of.truncate(to, clickhouse.isStored);
        return logChanged(of, 'logs truncated', size);
      }
      case 'store_down':
        return clickhouse.setDown(true);
      case 'store_up':
        return clickhouse.setDown(false);
      case 'store_restart':
        return clickhouse.restart();
      case 'others_write':
        return clickhouse.othersWrite(size + 1);
      case 'schema_registered':
        return clickhouse.registerSchema();
      case 'period_begins':
        return clickhouse.beginPeriod();
      case 'repair':
        clickhouse.repair(size % 2 === 0).catch(world.fail);
        return;
      case 'back_up':
        clickhouse.backUp().catch(world.fail);
        return;
      case 'snapshot':
        return clickhouse.snapshot();
      case 'group_deleted':
      case 'reset_to_earliest':
      case 'reset_to_end':
        everythingStops('kill or sigstop');
        for (const l of logs)
          group.setCommitted(
            l.partition,
            action === 'group_deleted'
              ? undefined
              : { offset: action === 'reset_to_end' ? l.high : l.low, metadata: '' },
          );
        return start(true);
      case 'other_group':
        group = groups.find((g) => g !== group)!;
        world.count('groups changed');
        return start(true);
      case 'restore':
        return restore();
    }
  }

  /** Of a log, compaction leaves no record by which the ledger knows it, and retention takes the oldest row of the rest. */
  function compactMarks(of: Log): void {
    const marks = clickhouse.marks(of.partition).filter((offset) => offset >= of.low && offset < of.high - 1);
    for (const offset of marks) of.compact(offset, clickhouse.isStored);
    const [oldest] = clickhouse
      .finished(of.partition)
      .filter((r) => of.has(r.event) && clickhouse.rows('raw').includes(r))
      .toSorted((a, b) => a.event.offset - b.event.offset);
    if (oldest !== undefined) clickhouse.expire([oldest]);
    world.count('marks compacted');
  }

  function logChanged(of: Log, what: string, size: number): void {
    world.count(what);
    for (const p of processes) p.logChanged(of.partition);
    produce(of, size);
  }

  function restore(): void {
    const { backup } = clickhouse;
    if (backup === undefined) return;
    // what the log was before cannot be told from what it is where the records are gone by which the ledger knows it
    for (const of of logs) if (!isNoticed(of) || of.life > 0) return;
    everythingStops('kill or sigstop');
    clickhouse.restore();
    for (const of of logs)
      for (const event of of.history) if (!of.has(event) && !clickhouse.isStored(event)) of.gone.add(event);
    world.count('restored');
    start(true);
  }
}
