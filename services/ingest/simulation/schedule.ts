import fc, { type Scheduler } from 'fast-check';
import { checkAccount } from './account.ts';
import { createClickHouse, type LedgerRow } from './clickhouse.ts';
import { createGroup, createKafka, SESSION_MS } from './kafka.ts';
import { startProcess, type Mutation, type Process } from './process.ts';
import { createWorld, type Counts } from './world.ts';

/** What happens from outside, and how often in proportion. */
const ACTIONS = {
  produce: 12, kill: 5, start: 5, sigstop: 4, wake: 4, pass_time: 4, cut_off: 2, heal: 2, stop: 2, clock_jump: 2,
  retention: 2, compaction: 1, topic_made_anew: 3,
  store_down: 1, store_up: 1, store_restart: 3, others_write: 4, store_upgraded: 2, schema_registered: 1, back_up: 2, snapshot: 1,
  group_deleted: 2, reset_to_earliest: 1, reset_to_end: 1, another_group: 1, restore: 4,
} as const;
type Action = keyof typeof ACTIONS;

export interface Scenario {
  /** of everything that is decided by chance while the schedule runs */
  readonly seed: number;
  readonly lingerMs: number;
  /** stopped processes are woken before (or after) the last owner has caught up */
  readonly wakeFirst: boolean;
  /** each so many steps after the one before */
  readonly actions: readonly { readonly action: Action; readonly after: number; readonly size: number }[];
}

export const scenarios: fc.Arbitrary<Scenario> = fc.record({
  seed: fc.noShrink(fc.integer()),
  lingerMs: fc.constantFrom(0, 50),
  wakeFirst: fc.boolean(),
  actions: fc.array(fc.record({
    action: fc.constantFrom(...(Object.keys(ACTIONS) as Action[]).flatMap((a) => Array.from({ length: ACTIONS[a] }, () => a))),
    after: fc.nat(14),
    size: fc.nat(7),
  }), { minLength: 4, maxLength: 14, size: 'max' }),
});

const DAY = 86_400_000;
const CLOCK_JUMPS = [-400 * DAY, -2 * 3_600_000, -300_000, -1_000, 1_000, 300_000, 2 * 3_600_000, 400 * DAY];

/** The last owner needs far fewer. */
const MAX_STEPS = 3_000;
const MAX_PROCESSES = 3;

/** Runs one schedule; rejects when the invariant is broken or the last owner does not finish. */
export async function runSchedule(scheduler: Scheduler, { seed, lingerMs, wakeFirst, actions }: Scenario, mutation: Mutation, counts: Counts, log?: (line: string) => void): Promise<void> {
  const world = createWorld(scheduler, seed, counts, log);
  const kafka = createKafka(world);
  const clickhouse = createClickHouse(world, kafka);
  let group = createGroup(world);
  const processes: Process[] = [];
  let rollupsAreExact = true;
  let steps = 0;
  let idle = 0;

  world.count('schedules');
  produce(3);
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
  if (!processes.some((p) => p.state === 'running' && !p.isDraining && p.group === group)) start(true);
  kafka.produce('event');
  const last = kafka.history.at(-1)!;
  const isFinished = (): boolean => {
    const end = clickhouse.ledgerEnd();
    return end !== undefined && clickhouse.lives.get(end.incarnation) === kafka.life && end.last >= last.offset;
  };
  while (!isFinished()) await step();
  for (const process of processes) process.wake();
  while (world.pending() > 0) await step();
  checkAccount(kafka, clickhouse, rollupsAreExact);

  async function step(): Promise<void> {
    if (++steps > MAX_STEPS) throw new Error('the last owner does not finish');
    if (world.pending() === 0) {
      if (++idle > 20) throw new Error('the last owner does not go on');
      passTime(SESSION_MS);
    }
    await world.step();
    world.check();
    world.count('steps');
  }

  function start(always = false): void {
    if (!always && processes.filter((p) => p.state !== 'dead').length >= MAX_PROCESSES) return;
    processes.push(startProcess(world, kafka, clickhouse, group, `p${processes.length}`, lingerMs, mutation));
  }

  function produce(n: number): void {
    for (let i = 0; i < n; i++) {
      const kind = (['event', 'event', 'event', 'event', 'event', 'null', 'control', 'absent'] as const)[world.below(8)]!;
      // that the topic is another is seen by the record at the offset of the ledger's last one
      kafka.produce(isNoticed() ? kind : 'event');
    }
  }

  function passTime(ms: number): void {
    world.now += ms;
    group.tick();
  }

  /** the ledger has come to the present life of the topic */
  function isNoticed(): boolean {
    const end = clickhouse.ledgerEnd();
    return end === undefined || clickhouse.lives.get(end.incarnation) === kafka.life;
  }

  function ledgerEndOffset(): number {
    return isNoticed() ? (clickhouse.ledgerEnd()?.last ?? -1) : -1;
  }

  /** the record by which the ledger knows this life of the topic is still in Kafka */
  function isKnownByRecord(end: LedgerRow | undefined): boolean {
    if (end?.end === undefined) return false;
    const slot = kafka.slot(end.end.offset);
    return typeof slot === 'object' && slot.life === clickhouse.lives.get(end.incarnation) && slot.time === end.end.time;
  }

  /** Every process is dead or stopped for longer than any request lives. */
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
    switch (action) {
      case 'produce': return produce(size + 1);
      case 'kill': return process.kill();
      case 'start': return start();
      case 'sigstop': return process.sigstop();
      case 'wake': return process.wake();
      case 'pass_time': return passTime((size + 1) * 6_000);
      case 'cut_off': return process.cut();
      case 'heal': return process.heal();
      case 'stop': return process.stop();
      case 'clock_jump': return process.skewClock(CLOCK_JUMPS[size]!);
      case 'retention': {
        // of a topic made anew, the record by which that is seen must not be gone
        const to = Math.min(kafka.low + size, kafka.high, isNoticed() ? Infinity : (clickhouse.ledgerEnd()?.end?.offset ?? 0));
        return kafka.cutStart(to, ledgerEndOffset());
      }
      case 'compaction': {
        const offset = kafka.high - 2 - size;
        if (offset >= kafka.low && isNoticed()) kafka.compact(offset, ledgerEndOffset());
        return;
      }
      case 'topic_made_anew':
        // before its first batch is in the ledger, a topic made anew cannot be told from one whose group was deleted
        if (!isKnownByRecord(clickhouse.ledgerEnd())) return;
        kafka.madeAnew(ledgerEndOffset());
        group.setCommitted(undefined);
        world.count('topics made anew');
        for (const p of processes) p.topicMadeAnew();
        return produce(size);
      case 'store_down': return clickhouse.setDown(true);
      case 'store_up': return clickhouse.setDown(false);
      case 'store_restart': return clickhouse.restart();
      case 'others_write': return clickhouse.othersWrite(size + 1);
      case 'store_upgraded':
        everythingStops('kill');
        clickhouse.upgrade();
        return start(true);
      case 'schema_registered': return clickhouse.registerSchema();
      case 'back_up': clickhouse.backUp().catch(world.fail); return;
      case 'snapshot': return clickhouse.snapshot();
      case 'group_deleted':
      case 'reset_to_earliest':
      case 'reset_to_end':
        everythingStops('kill or sigstop');
        group.setCommitted(action === 'group_deleted' ? undefined : { offset: action === 'reset_to_end' ? kafka.high : kafka.low, metadata: '' });
        return start(true);
      case 'another_group':
        everythingStops('kill');
        group = createGroup(world);
        return start(true);
      case 'restore': return restore();
    }
  }

  function restore(): void {
    const { backup } = clickhouse;
    if (backup === undefined) return;
    const end = backup.tables.ledger.rows.at(-1);
    const life = end === undefined ? 0 : clickhouse.lives.get(end.incarnation);
    // an older life than the last but one, or one that is not known by its record, cannot be told from the present one
    if (life !== kafka.life && !(life === kafka.life - 1 && end?.end !== undefined && kafka.low === 0 && (kafka.high <= end.last || typeof kafka.slot(end.end.offset) === 'object'))) return;
    everythingStops('kill or sigstop');
    clickhouse.restore();
    if (!backup.isSnapshot) rollupsAreExact = false;
    for (const event of kafka.history) if (!kafka.has(event) && !clickhouse.isFinished(event)) kafka.gone.add(event);
    world.count('restored');
    start(true);
  }
}
