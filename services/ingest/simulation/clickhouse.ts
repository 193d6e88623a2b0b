import { tokenOf } from '../delivery/intent.ts';
import { insertAllowed, type Contribution, type Seat } from '../delivery/joint.ts';
import type {
  BadShare,
  Batch,
  Ended,
  Fence,
  LedgerEntry,
  OrphanRows,
  Owner,
  RecordMark,
  Store,
  Stored,
} from '../delivery/ports.ts';
import type { Rules } from '../evaluate/evaluate.ts';
import { checksum } from '../evaluate/record.ts';
import type { Event, Log } from './kafka.ts';
import { createTables, type Job, type Part, type Row } from './tables.ts';
import type { World } from './world.ts';

export interface LedgerRow extends LedgerEntry {
  readonly partition: number;
  readonly group: string;
}

/** What a process is for a server: where answers go, and what it evaluates by. */
export interface Client {
  readonly group: string;
  readonly retentionDays: number;
  /** resolves when the process runs: never if it is dead, later if it is stopped */
  alive(): Promise<void>;
  isDead(): boolean;
}

const TOPIC = 'topic';
const INSERT_DELAYED = 0.15;
/** store.ts: a register of this age is used, milliseconds */
const REGISTER_AGE_MS = 2_000;
/**
 * A request that is on its way for longer than so many parts of its table never arrives (ARCHITECTURE.md, Limits). The
 * window holds 24.
 */
const ON_ITS_WAY_PARTS = 6;
/** of the ledger; few, so that schedules read several pages */
const MARKS_PER_PAGE = 3;

export type ClickHouse = ReturnType<typeof createClickHouse>;

/**
 * The tables as the protocol needs them, without evaluation: a verdict is a function of the event and the rules. A
 * request on the server lives until it is done, killed, or the server restarts. What an insert writes, part by part, is
 * tables.ts.
 */
export function createClickHouse(world: World, logs: readonly Log[]) {
  const tables = createTables(world, onPart);
  const ledger: LedgerRow[] = [];
  const owners: { partition: number; group: string; epoch: number }[] = [];
  /** periods */
  const repairs = new Set<number>();
  /** rows that retention has taken */
  const expired: Row[] = [];
  const registry = new Set<number>();
  let period = 0;
  let isDown = false;
  const pausedUntil = new Map<number, number>();
  let inserts = 0;
  const jobs = new Set<Job>();
  let backup: (ReturnType<typeof state> & { parts: ReturnType<typeof tables.copy>; isSnapshot: boolean }) | undefined;
  /**
   * written by a late request of a former owner: when the ledger had its batch already, or when Kafka no longer had the
   * record
   */
  const late = new Set<Event>();
  /** counts the moments at which no request was on its way */
  let era = 0;
  let repairsDone = 0;
  let refused: number[] = [];
  /** of the database: each restore begins one */
  let life = 0;

  return {
    ledger,
    late,
    rows: tables.rows,
    expired,
    ledgerEnd,
    /** The offsets by which the ledger knows the present life of the partition. */
    marks: (partition: number): number[] =>
      marksOf(partition, ledgerEnd(partition)?.incarnation ?? 0, Infinity).map((m) => m.offset),
    /** Rows of the present life that are in a batch of the ledger. */
    finished(partition: number): Row[] {
      const life = ledgerEnd(partition)?.incarnation;
      return stored().filter((r) => r.event.partition === partition && r.incarnation === life && isFinished(r));
    },
    expire(rows: readonly Row[]): void {
      expired.push(...rows);
      tables.expire(new Set(rows.map((r) => r.event)));
    },
    isStored,
    storeOf,
    badShareOf,
    setDown(down: boolean): void {
      isDown = down;
    },
    registerSchema(): void {
      registry.add(1);
    },
    /** The rollup service begins a new period. */
    beginPeriod(): void {
      period++;
    },
    /** It is stopped and started: what runs ends where it is. */
    restart(): void {
      for (const job of jobs) if (job.isOnServer) job.isKilled = true;
    },
    /** So much time passes that no request is on its way any more. What runs goes on. */
    settle(): void {
      for (const job of jobs) if (!job.isOnServer) job.isKilled = true;
      era++;
    },
    /** Other topics fill the deduplication windows. */
    othersWrite: (parts: number): void => tables.othersWrite(parts),
    /**
     * Every table at a moment of its own, the ledger first (where it came last, it would claim rows that the other
     * tables lack). It does not count if a repair was done meanwhile.
     */
    async backUp(): Promise<void> {
      const moment = (): string => [era, repairsDone, life].join();
      const begun = moment();
      const first = state();
      await world.hop('backup');
      // Rows that expire later are still in these parts. A row that expired before is written again after a restore if
      // the copied ledger lacks its batch.
      const [parts, gone] = [tables.copy(), expired.filter((row) => batchOf(row, first.ledger) !== undefined)];
      await world.hop('backup');
      if (begun === moment()) backup = { ...first, parts, repairs: [...repairs], expired: gone, isSnapshot: false };
    },
    /** All tables and windows at one moment: a snapshot of the volume. */
    snapshot(): void {
      backup = { ...state(), parts: tables.copy(), isSnapshot: true };
    },
    get backup() {
      return backup;
    },
    /** The rollup service, like all others, is stopped before it. */
    restore(): void {
      for (const job of jobs) job.isKilled = true;
      life++;
      tables.restore(backup!.parts, backup!.isSnapshot);
      ledger.splice(0, ledger.length, ...backup!.ledger);
      owners.splice(0, owners.length, ...backup!.owners);
      repairs.clear();
      for (const of of backup!.repairs) repairs.add(of);
      expired.splice(0, expired.length, ...backup!.expired);
      period = Math.max(period, backup!.period);
    },
    /** The rollup service does the repairs that wait; with `all`, it compares every period with raw too. */
    async repair(all: boolean): Promise<void> {
      const begun = life;
      for (const of of state().repairs) {
        if (!(await build(of, begun))) continue;
        repairs.delete(of);
        repairsDone++;
      }
      if (!all) return;
      refused = [];
      for (const of of new Set((['raw', 'rollup1m', 'rollup1h'] as const).flatMap(tables.rows).map((r) => r.period)))
        if (!(await build(of, begun))) refused.push(of);
    },
    /** Periods whose build was refused when all were compared last: raw holds rows beyond the ledger's end. */
    get refused() {
      return refused;
    },
  };

  function state() {
    return { ledger: [...ledger], owners: [...owners], repairs: [...repairs], expired: [...expired], period };
  }

  /**
   * A period's rollups made from raw and swapped in, if the ledger has reached the batch of every row
   * (unfinished_batches.sql).
   */
  async function build(of: number, begun: number): Promise<boolean> {
    if (life !== begun) return false;
    if (of >= period) period = of + 1;
    await world.hop('repair');
    if (life !== begun) return false;
    const rows = tables.rows('raw').filter((r) => r.period === of);
    const isUnfinished = ({ event, incarnation, batchLast }: Row): boolean => {
      const { incarnation: life = -1, last = -1 } = ledgerEnd(event.partition) ?? {};
      return incarnation > life || (incarnation === life && batchLast > last);
    };
    if (rows.some(isUnfinished)) return false;
    await world.hop('repair');
    if (life !== begun || countIn(of) !== rows.length) return false;
    tables.replaceRollups(of, rows);
    await world.hop('repair');
    return life === begun && countIn(of) === rows.length;
  }

  function countIn(of: number): number {
    return tables.rows('raw').filter((r) => r.period === of).length;
  }

  /** withTokens = false: no two inserts have the same token */
  function storeOf(client: Client, partition: number, withTokens: boolean): Store {
    let seen: { at: number; register: Awaited<ReturnType<Store['register']>> } | undefined;
    const rulesFor = (records: readonly unknown[], evaluatedAt: number, least: number): Rules => ({
      version: 1,
      evaluatedAt,
      retentionDays: client.retentionDays,
      maxEventBytes: 1,
      rawAvro: false,
      period: least,
      schemaIds: [
        ...new Set(
          (records as readonly Event[]).flatMap(({ schemaId }) =>
            schemaId !== undefined && registry.has(schemaId) ? [schemaId] : [],
          ),
        ),
      ],
    });
    return {
      ledgerEnd: () =>
        request(client, 'ledger end', () => {
          const end = ledgerEnd(partition);
          return end === undefined
            ? undefined
            : {
                incarnation: end.incarnation,
                last: end.last,
                period: end.rules.period,
                group: end.group,
                record: end.end,
                isClosed: end.closes,
              };
        }),
      marks: (incarnation, before) =>
        request(client, 'marks', () => marksOf(partition, incarnation, before).slice(0, MARKS_PER_PAGE)),
      orphans: (incarnation, from, since) =>
        request(client, 'orphans', () => orphans(partition, incarnation, from, since)),
      compare: (incarnation, records) =>
        request(client, 'difference', () =>
          (records as readonly Event[]).map((event) => {
            const found = stored().find(
              (r) =>
                r.incarnation === incarnation && r.event.partition === partition && r.event.offset === event.offset,
            );
            if (found === undefined) return event.value === null ? undefined : 'nothing';
            return checksum(found.event) === checksum(event) ? 'same' : 'another';
          }),
        ),
      async register(fresh) {
        if (fresh !== true && seen !== undefined && world.now - seen.at <= REGISTER_AGE_MS) return seen.register;
        const at = world.now;
        const register = await request(client, 'register', () => ({ period, owner: ownerOf(partition) }));
        seen = { at, register };
        return register;
      },
      claim: (epoch) =>
        request(client, 'claim', () => {
          if (!owners.some((o) => o.partition === partition && o.epoch === epoch))
            owners.push({ partition, group: client.group, epoch });
        }),
      rulesFor: (records, evaluatedAt, least) =>
        request(client, 'schemas', () => rulesFor(records, evaluatedAt, least)),
      endRunning: () =>
        request(client, 'kill', () => {
          for (const job of jobs) {
            if (!job.isOnServer || !job.partitions.includes(partition)) continue;
            job.isKilled = true;
            world.count('inserts killed');
          }
        }),
      insert: (batch, without, attempt, fence, seat) =>
        insert(
          client,
          partition,
          batch,
          without,
          fence,
          withTokens ? tokenOf(TOPIC, partition, batch, attempt) : `insert ${inserts++}`,
          seat,
        ),
      requestRepair: (batch) =>
        request(client, 'repair', () => {
          for (const { event, incarnation, batchLast, period: of } of tables.rows('raw'))
            if (event.partition === partition && incarnation === batch.incarnation && batchLast === batch.last)
              repairs.add(of);
          world.count('repairs requested');
        }),
      writeLedger: (entry) => record(client, partition, entry),
    };
  }

  /** Pauses come by chance; they are kept here, for whoever has the partition. */
  function badShareOf(client: Client, partition: number): BadShare {
    return {
      paused: () =>
        request(client, 'paused', () => {
          const leftMs = (pausedUntil.get(partition) ?? 0) - world.now;
          return leftMs > 0 ? { leftMs } : undefined;
        }),
      add: () => {},
      pauses: () =>
        request(client, 'share', () => {
          if (!world.chance(0.1)) return false;
          pausedUntil.set(partition, world.now + world.below(40_000));
          return true;
        }),
    };
  }

  async function request<T>(client: Client, label: string, serve: () => T): Promise<T> {
    await world.hop(label);
    if (isDown || world.chance(0.02)) {
      await client.alive();
      throw retry('refused');
    }
    const result = serve();
    // mostly at once: a schedule is to spend its steps on what writes
    if (world.below(4) === 0) await world.hop(`${label} answer`);
    await client.alive();
    return result;
  }

  function isRow(
    { bad, acceptedFrom, ageDays, schemaId }: Event,
    { evaluatedAt, retentionDays, schemaIds }: Rules,
  ): boolean {
    return (
      !bad &&
      evaluatedAt >= acceptedFrom &&
      retentionDays > ageDays &&
      (schemaId === undefined || schemaIds.includes(schemaId))
    );
  }

  async function insert(
    client: Client,
    partition: number,
    batch: Batch,
    without: ReadonlySet<number>,
    fence: Fence,
    token: string,
    seat: Seat | undefined,
  ): Promise<Stored | 'unfinished' | Ended> {
    const { incarnation, last: batchLast, rules } = batch;
    const events = (batch.records as readonly Event[]).filter((e) => e.value !== null && !without.has(e.offset));
    if (events.length === 0) return { rows: 0, deadLetters: 0, minTimestamp: undefined };
    const rowOf = (event: Event): Row => ({
      event,
      incarnation,
      batchLast,
      evaluatedAt: rules.evaluatedAt,
      period: Math.max(rules.period, event.period),
    });
    const good = events.filter((e) => isRow(e, rules)).map(rowOf);
    const dead = events.filter((e) => !isRow(e, rules)).map(rowOf);
    if (dead.length > 0) {
      const ended = await fence();
      if (ended !== undefined) return ended;
      const part = { target: 'dead', partition: 'month', token: `${token}:dead`, rows: dead } as const;
      if (!(await write(client, [partition], [part]))) return 'unfinished';
    }
    const contribution: Contribution<{ readonly partition: number; readonly good: readonly Row[] }> = {
      rows: { partition, good },
      fence,
      async insertAll(contributions) {
        if (contributions.length > 1) world.count('joint inserts');
        const rows = contributions.flatMap((c) => c.rows.good);
        const parts = tables.partsOf(rows, token);
        const partitions = contributions.map((c) => c.rows.partition);
        return (await write(client, partitions, parts)) ? 'done' : 'unfinished';
      },
    };
    if (good.length > 0) {
      const inserted = (await seat?.insert(contribution)) ?? (await insertAllowed([contribution]))[0]!;
      if (inserted !== 'done') return inserted;
    }
    return { rows: good.length, deadLetters: dead.length, minTimestamp: undefined };
  }

  /** False: a view threw after the raw rows. */
  async function write(client: Client, partitions: readonly number[], parts: readonly Part[]): Promise<boolean> {
    const failsAfter = world.chance(0.15) ? world.below(parts.length + 1) : Infinity;
    const job: Job = {
      partitions,
      parts,
      written: 0,
      isOnServer: false,
      isKilled: false,
      sentAt: parts.map((p) => tables.partsEver(p.target)),
    };
    jobs.add(job);
    await world.hop('insert', INSERT_DELAYED);
    const isTooOld = parts.some((p, i) => tables.partsEver(p.target) - job.sentAt[i]! > ON_ITS_WAY_PARTS);
    if (isDown || client.isDead() || isTooOld || world.chance(0.03)) job.isKilled = true;
    job.isOnServer = true;
    const served = serve(job, failsAfter);
    if (world.chance(0.15)) {
      await world.hop('insert timeout');
      world.count('inserts given up by the client');
    } else {
      await served;
      await world.hop('insert answer');
    }
    await client.alive();
    if (job.written === parts.length) return true;
    if (
      parts.some((p) => p.target === 'raw') &&
      parts[job.written - 1]?.target.startsWith('rollup') === true &&
      world.below(2) === 0
    )
      return false;
    throw retry('insert failed');
  }

  async function serve(job: Job, failsAfter: number): Promise<void> {
    const atOnce = world.below(2) === 0;
    while (job.written < job.parts.length && !job.isKilled && job.written < failsAfter) {
      tables.writePart(job.parts[job.written++]!);
      if (!atOnce) await world.hop('part', INSERT_DELAYED);
    }
    jobs.delete(job);
  }

  function onPart({ target, rows }: Part): void {
    for (const row of rows) if (isFinished(row) || !logs[row.event.partition]!.has(row.event)) late.add(row.event);
    if (target.startsWith('rollup') && rows.some((r) => late.has(r.event))) world.count('rollups left to the audit');
  }

  async function record(client: Client, partition: number, entry: LedgerEntry): Promise<void> {
    const begun = era;
    await world.hop('record');
    const isLost = isDown || begun !== era || world.chance(0.05);
    if (!isLost) writeLedgerRow();
    else if (!isDown && world.below(2) === 0) recordLate().catch(world.fail);
    await world.hop('record answer');
    await client.alive();
    if (isLost || world.chance(0.05)) throw retry('record failed');

    async function recordLate(): Promise<void> {
      await world.hop('record late');
      if (begun === era) writeLedgerRow();
    }

    function writeLedgerRow(): void {
      world.trace('ledger', { partition, ...entry });
      const idOf = (r: LedgerEntry): string => `${r.incarnation}:${r.first}-${r.last}`;
      if (!ledger.some((r) => r.partition === partition && idOf(r) === idOf(entry)))
        ledger.push({ ...entry, partition, group: client.group });
    }
  }

  function ownerOf(partition: number): Owner | undefined {
    const [last, ...before] = owners.filter((o) => o.partition === partition).toSorted((a, b) => b.epoch - a.epoch);
    if (last === undefined) return undefined;
    const former = before.find((o) => o.group !== last.group)?.group;
    return {
      group: last.group,
      epoch: last.epoch,
      former,
      isSettled: former === undefined || before[0]?.group === last.group,
    };
  }

  function stored(): Row[] {
    return [...tables.rows('raw'), ...tables.rows('dead')];
  }

  function batchOf({ incarnation, event }: Row, rows = ledger): LedgerRow | undefined {
    return rows.find(
      (b) =>
        b.partition === event.partition &&
        b.incarnation === incarnation &&
        event.offset >= b.first &&
        event.offset <= b.last,
    );
  }

  function isFinished(row: Row): boolean {
    return batchOf(row) !== undefined;
  }

  /** in a table and in a batch of the ledger */
  function isStored(event: Event): boolean {
    return [...stored(), ...expired].some((r) => r.event === event && isFinished(r));
  }

  function ledgerEnd(partition: number): LedgerRow | undefined {
    const rows = ledger.filter((r) => r.partition === partition);
    return rows.toSorted((a, b) => b.incarnation - a.incarnation || b.first - a.first)[0];
  }

  function marksOf(partition: number, incarnation: number, before: number): RecordMark[] {
    const marks = ledger
      .filter((r) => r.partition === partition && r.incarnation === incarnation)
      .flatMap((r) => [r.begin, r.end])
      .filter((m) => m !== undefined && m.offset < before) as RecordMark[];
    return [...new Map(marks.map((m) => [m.offset, m])).values()].toSorted((a, b) => b.offset - a.offset);
  }

  function orphans(partition: number, incarnation: number, from: number, since: number): OrphanRows[] {
    const isMeant = ({ event, incarnation: of }: Row): boolean =>
      event.partition === partition && (of > incarnation || (of === incarnation && event.offset >= from));
    const raw = tables.rows('raw').filter((row) => isMeant(row) && row.period >= since);
    const dead = tables.rows('dead').filter(isMeant);
    const offsetsOf = (rows: readonly Row[]): number[] => rows.map((r) => r.event.offset).toSorted((a, b) => a - b);
    const batches = Map.groupBy([...raw, ...dead], (r) => `${r.incarnation} ${r.batchLast} ${r.evaluatedAt}`);
    return [...batches.values()]
      .map((of) => ({
        incarnation: of[0]!.incarnation,
        last: of[0]!.batchLast,
        evaluatedAt: of[0]!.evaluatedAt,
        offsets: offsetsOf(of.filter((row) => raw.includes(row))),
        deadOffsets: offsetsOf(of.filter((row) => dead.includes(row))),
        minTimestamp: undefined,
      }))
      .toSorted((a, b) => a.incarnation - b.incarnation || a.last - b.last || a.evaluatedAt - b.evaluatedAt);
  }
}

function retry(message: string): Error {
  return Object.assign(new Error(message), { kind: 'retry' });
}
