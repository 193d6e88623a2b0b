import { tokenOf } from '../intent.ts';
import type { Brake } from '../brake.ts';
import type { Batch, LastRecord, LedgerEntry, Store, Stray } from '../lane.ts';
import type { Refused } from '../refused.ts';
import type { Event, Kafka } from './kafka.ts';
import type { World } from './world.ts';

export interface Row {
  readonly event: Event;
  readonly incarnation: number;
  readonly batchLast: number;
  readonly judgedAt: number;
}

/** One part of a table: what one insert put into one of its partitions, all of it or nothing. */
interface Part {
  readonly partition: string;
  readonly token: string;
  readonly rows: readonly Row[];
}

interface Table {
  parts: Part[];
  /** the deduplication window: partition and token of the last parts */
  window: string[];
  /** when it was created, or restored */
  madeAt: number;
}

export interface LedgerRow {
  readonly incarnation: number;
  readonly first: number;
  readonly last: number;
  readonly judgedAt: number;
  readonly stored: number;
  readonly deadLettered: number;
  readonly nullValues: number;
  readonly noRecords: number;
  readonly gap: number;
  readonly end: LastRecord | undefined;
  readonly closes: boolean;
}

interface Ledger {
  rows: LedgerRow[];
  madeAt: number;
  /** when batches were judged or finished, whichever is later, other partitions' too */
  moments: number[];
}

const TARGETS = ['raw', 'dead', 'rollup1m', 'rollup1h'] as const;
type Target = (typeof TARGETS)[number];
type Tables = { [T in Target]: Table } & { ledger: Ledger };

/** An insert on the server: its parts are written one after the other, whether or not the client still waits. */
interface Job {
  readonly parts: readonly (Part & { readonly target: Target })[];
  written: number;
  aborted: boolean;
  /** it ends with an error after this many parts */
  readonly failsAfter: number;
  readonly since: number;
}

/** Parts that a window remembers. Batches of this model touch two days at most, other partitions' batches two parts. */
const WINDOW = 16;
/** store.ts: a token is trusted while fewer batches than this were written after it */
const TRUSTED_BATCHES = 3;
/** store.ts: clocks may differ by this, milliseconds */
const CLOCK_SKEW_MS = 5_000;
/** No request outlives this many batches of other partitions: 2 parts * (3 trusted + 4 in flight) < 16. The real numbers: 5 * (2,000 + ...) < 10,000. */
const REQUEST_BATCHES = 4;

export const TOPIC = 'topic';

const INSERT_DELAYED = 0.15;

/** What a process is for a server: where answers go. */
export interface Client {
  /** resolves when the process runs: never if it is dead, later if it is stopped */
  alive(): Promise<void>;
}

export type ClickHouse = ReturnType<typeof createClickHouse>;

/**
 * Token semantics of ClickHouse as store.ts relies on them. An insert is split into one part per table and day; each part is written once per token while
 * the token is in its table's window; a part that is there already does not keep the following ones from being written. Raw rows and dead letters come
 * in any order, rollups after raw, 1h after 1m. An insert may be refused, fail half way, be cut off by a restart, or go on after its client gave up.
 * Some events are refused for what they hold, until the engine is one of another version.
 */
export function createClickHouse(world: World, kafka: Kafka) {
  const empty = (): Table => ({ parts: [], window: [], madeAt: 0 });
  const tables: Tables = { raw: empty(), dead: empty(), rollup1m: empty(), rollup1h: empty(), ledger: { rows: [], madeAt: 0, moments: [] } };
  const jobs = new Set<Job>();
  const registry = new Set<number>();
  let isDown = false;
  let isUpgraded = false;
  let pausedUntil = 0;
  /** batches of other partitions, ever */
  let others = 0;
  let inserts = 0;
  /** counts the moments at which no request was under way */
  let era = 0;
  let backup: { readonly tables: Tables; readonly isSnapshot: boolean } | undefined;
  /** events whose row was written when Kafka did not have them any more: whoever formed their batch again cannot have counted them */
  const late = new Set<Event>();
  /** the life of the topic whose records went under an incarnation */
  const lives = new Map<number, number>();
  /** batches (by moment of judgement) whose token could not be trusted: their rollups are left to the audit */
  const untrusted = new Set<number>();

  return {
    tables,
    late,
    untrusted,
    lives,
    isFinished,
    ledgerEnd,
    storeOf,
    brakeOf,
    setDown(down: boolean): void { isDown = down; },
    /** Nobody writes meanwhile. */
    upgrade(): void { isUpgraded = true; },
    registerSchema(): void { registry.add(1); },
    /** It is stopped and started: what was under way ends where it is. */
    restart(): void {
      for (const job of jobs) job.aborted = true;
      jobs.clear();
    },
    /** So much time passes that no request is under way any more. */
    settle(): void {
      for (const job of jobs) {
        if (world.below(2) === 0 && others - job.since <= REQUEST_BATCHES) while (job.written < job.parts.length) writePart(job);
        job.aborted = true;
      }
      jobs.clear();
      era++;
    },
    /** Other partitions go on writing. */
    othersWrite(batches: number): void {
      for (let i = 0; i < batches; i++) {
        others++;
        tables.ledger.moments.push(world.now);
        for (const target of TARGETS) for (let part = 0; part < 2; part++) remember(tables[target].window, `other ${others} ${part}`);
      }
    },
    /** Every table at a moment of its own, the ledger first (where it came last, it would claim rows that the other tables lack). */
    async backUp(): Promise<void> {
      const begun = era;
      const taken = copyOf(tables);
      const order = [...TARGETS];
      while (order.length > 0) {
        await world.hop('backup');
        const [target] = order.splice(world.below(order.length), 1);
        taken[target!] = copyTable(tables[target!]);
      }
      if (begun === era) backup = { tables: taken, isSnapshot: false };
    },
    /** All tables and windows at one moment: a snapshot of the volume. */
    snapshot(): void {
      backup = { tables: copyOf(tables), isSnapshot: true };
    },
    get backup() { return backup; },
    /** Tables made anew from a backup have no window. */
    restore(): void {
      if (backup === undefined) throw new Error('no backup');
      Object.assign(tables, copyOf(backup.tables));
      if (!backup.isSnapshot) {
        for (const target of TARGETS) Object.assign(tables[target], { window: [], madeAt: world.now });
        tables.ledger.madeAt = world.now;
      }
    },
  };

  /** withTokens = false: no two inserts have the same token */
  function storeOf(client: Client, withTokens: boolean): Store {
    return {
      ledgerEnd: () => request(client, 'ledger end', () => {
        const end = ledgerEnd();
        return end === undefined ? undefined : { incarnation: end.incarnation, last: end.last, judgedAt: end.judgedAt, record: end.end, isClosed: end.closes };
      }),
      strays: (incarnation, from, judgedSince) => request(client, 'strays', () => strays(incarnation, from, judgedSince)),
      tokenIsKept: (judgedAt) => request(client, 'batches since', () => tokenIsKept(judgedAt)),
      schemaIds: (records) => request(client, 'schemas', () => [...new Set(records.flatMap((r) => { const { schemaId } = r as Event; return schemaId !== undefined && registry.has(schemaId) ? [schemaId] : []; }))]),
      insert: (batch, present) => insert(client, batch, present, withTokens ? tokenOf(TOPIC, 0, batch) : `insert ${inserts++}`),
      refuse: (batch, refused) => refuse(client, batch, refused.map((r) => r.offset)),
      record: (entry) => record(client, entry),
    };
  }

  /** Pauses come by chance; they are kept here, for whoever has the partition. */
  function brakeOf(client: Client): Brake {
    return {
      paused: () => request(client, 'paused', () => (pausedUntil > world.now ? { topic: TOPIC, partition: 0, incarnation: 0, next: 0, bad: 0, messages: 0, pausedUntil: '', leftMs: pausedUntil - world.now } : undefined)),
      applies: () => request(client, 'share', () => {
        if (!world.chance(0.15)) return false;
        pausedUntil = world.now + world.below(40_000);
        return true;
      }),
    };
  }

  async function request<T>(client: Client, label: string, serve: () => T): Promise<T> {
    const since = others;
    await world.hop(label);
    if (isDown || world.chance(0.03)) {
      await client.alive();
      throw retry('refused');
    }
    const result = serve();
    await world.hop(`${label} answer`);
    await client.alive();
    if (others - since > REQUEST_BATCHES) throw retry('timeout');
    return result;
  }

  async function insert(client: Client, batch: Batch, present: ReadonlySet<number> | undefined, token: string): Promise<Refused[]> {
    const events = (batch.records as readonly Event[]).filter((e) => e.value !== null && present?.has(e.offset) !== true);
    if (batch.isRest === true) untrusted.add(batch.judgedAt);
    if (events.length === 0) return [];
    const refused = events.filter((e) => e.refused && !isUpgraded);
    if (refused.length > 0) return request(client, 'dry runs', () => refused.map(({ offset }) => ({ offset, detail: 'refused' })));
    await write(client, partsOf(batch, events, token));
    return [];
  }

  async function refuse(client: Client, batch: Batch, offsets: readonly number[]): Promise<void> {
    world.count('messages refused');
    const rows = (batch.records as readonly Event[]).filter((e) => offsets.includes(e.offset)).map((event) => ({ event, incarnation: batch.incarnation, batchLast: batch.last, judgedAt: batch.judgedAt }));
    await write(client, [{ target: 'dead', partition: 'month', token: `${tokenOf(TOPIC, 0, batch)}:refused:${offsets[0]}`, rows }]);
  }

  async function write(client: Client, parts: Job['parts']): Promise<void> {
    const job: Job = { parts, written: 0, aborted: false, failsAfter: world.chance(0.15) ? world.below(parts.length + 1) : Infinity, since: others };
    jobs.add(job);
    await world.hop('insert', INSERT_DELAYED);
    if (isDown || world.chance(0.03)) {
      job.aborted = true;
      jobs.delete(job);
    }
    const served = serve(job);
    if (world.chance(0.15)) {
      await world.hop('insert timeout');
      world.count('inserts given up by the client');
    } else {
      await served;
      await world.hop('insert answer');
    }
    await client.alive();
    if (job.written < parts.length || others - job.since > REQUEST_BATCHES) throw retry('insert failed');
  }

  async function serve(job: Job): Promise<void> {
    const atOnce = world.below(2) === 0;
    while (job.written < job.parts.length && !job.aborted) {
      if (job.written >= job.failsAfter || others - job.since > REQUEST_BATCHES) break;
      writePart(job);
      if (!atOnce) await world.hop('part', INSERT_DELAYED);
    }
    jobs.delete(job);
  }

  function partsOf(batch: Batch, events: readonly Event[], token: string): Job['parts'] {
    const { incarnation, last: batchLast, judgedAt } = batch;
    const rowOf = (event: Event): Row => ({ event, incarnation, batchLast, judgedAt });
    const isDead = (e: Event): boolean => e.bad || judgedAt < e.acceptedFrom || (e.schemaId !== undefined && batch.schemaIds?.includes(e.schemaId) !== true);
    const good = events.filter((e) => !isDead(e)).map(rowOf);
    const dead = events.filter(isDead).map(rowOf);
    const first: Job['parts'][number][] = [];
    for (const day of [0, 1]) {
      const rows = good.filter(({ event }) => event.day === day);
      if (rows.length > 0) first.push({ target: 'raw', partition: `day${day}`, token, rows });
    }
    if (dead.length > 0) first.splice(world.below(first.length + 1), 0, { target: 'dead', partition: 'month', token, rows: dead });
    return good.length === 0 ? first : [...first, { target: 'rollup1m', partition: 'period', token, rows: good }, { target: 'rollup1h', partition: 'period', token, rows: good }];
  }

  function writePart(job: Job): void {
    const part = job.parts[job.written++]!;
    const table = tables[part.target];
    const key = `${part.partition} ${part.token}`;
    if (table.window.includes(key)) {
      world.count('parts deduplicated');
      return;
    }
    world.trace('part', { target: part.target, partition: part.partition, token: part.token, offsets: part.rows.map((r) => r.event.offset) });
    remember(table.window, key);
    table.parts.push(part);
    for (const { event, incarnation } of part.rows) {
      if (!kafka.has(event)) late.add(event);
      if (!lives.has(incarnation)) lives.set(incarnation, event.life);
    }
  }

  /** in a table and in a batch of the ledger */
  function isFinished(event: Event): boolean {
    const row = rowsOf('raw').find((r) => r.event === event) ?? rowsOf('dead').find((r) => r.event === event);
    return row !== undefined && tables.ledger.rows.some((b) => b.incarnation === row.incarnation && event.offset >= b.first && event.offset <= b.last);
  }

  async function record(client: Client, entry: LedgerEntry): Promise<void> {
    const since = others;
    const begun = era;
    await world.hop('record');
    const lost = isDown || begun !== era || world.chance(0.05);
    if (!lost) writeLedgerRow(entry);
    else if (!isDown && world.below(2) === 0) recordLate().catch(world.fail);
    await world.hop('record answer');
    await client.alive();
    if (lost || world.chance(0.05) || others - since > REQUEST_BATCHES) throw retry('record failed');

    async function recordLate(): Promise<void> {
      await world.hop('record late');
      if (begun === era && others - since <= REQUEST_BATCHES) writeLedgerRow(entry);
    }
  }

  /** sql/record_batch.sql */
  function writeLedgerRow(entry: LedgerEntry): void {
    const { incarnation, first, last, judgedAt, nullValues, end, closes } = entry;
    const inRange = (r: Row): boolean => r.incarnation === incarnation && r.event.offset >= first && r.event.offset <= last;
    const stored = rowsOf('raw').filter((r) => inRange(r) && r.judgedAt === judgedAt).length;
    const deadLettered = rowsOf('dead').filter(inRange).length;
    const rest = last - first + 1 - stored - deadLettered - nullValues;
    const gap = Math.min(rest, entry.gap);
    const row: LedgerRow = { incarnation, first, last, judgedAt, stored, deadLettered, nullValues, noRecords: rest - gap, gap, end, closes };
    world.trace('ledger', row);
    tables.ledger.rows.push(row);
    tables.ledger.moments.push(Math.max(judgedAt, world.now));
  }

  /** sql/ledger_end.sql */
  function ledgerEnd(): LedgerRow | undefined {
    let end: LedgerRow | undefined;
    for (const row of tables.ledger.rows) if (end === undefined || row.incarnation > end.incarnation || (row.incarnation === end.incarnation && row.first > end.first)) end = row;
    return end;
  }

  /** sql/strays.sql */
  function strays(incarnation: number, from: number, judgedSince: number): Stray[] {
    const found = new Map<string, { last: number; judgedAt: number; offsets: number[]; deadLetters: number[] }>();
    for (const target of ['raw', 'dead'] as const) {
      for (const row of rowsOf(target)) {
        if (row.judgedAt <= judgedSince || row.incarnation !== incarnation || row.event.offset < from) continue;
        const key = `${row.batchLast} ${row.judgedAt}`;
        const stray = found.get(key) ?? { last: row.batchLast, judgedAt: row.judgedAt, offsets: [], deadLetters: [] };
        stray.offsets.push(row.event.offset);
        if (target === 'dead') stray.deadLetters.push(row.event.offset);
        found.set(key, stray);
      }
    }
    for (const stray of found.values()) stray.offsets.sort((a, b) => a - b);
    return [...found.values()].toSorted((a, b) => a.last - b.last || a.judgedAt - b.judgedAt);
  }

  /** sql/batches_since.sql */
  function tokenIsKept(judgedAt: number): boolean {
    const { ledger, raw, dead } = tables;
    const since = ledger.moments.filter((at) => at >= judgedAt - CLOCK_SKEW_MS).length;
    const kept = since < TRUSTED_BATCHES && Math.max(ledger.madeAt, raw.madeAt, dead.madeAt) <= judgedAt && judgedAt <= world.now + CLOCK_SKEW_MS;
    if (!kept) untrusted.add(judgedAt);
    return kept;
  }

  function rowsOf(target: Target): Row[] {
    return tables[target].parts.flatMap((part) => part.rows);
  }
}

function remember(window: string[], key: string): void {
  window.push(key);
  if (window.length > WINDOW) window.shift();
}

function copyOf({ raw, dead, rollup1m, rollup1h, ledger }: Tables): Tables {
  return { raw: copyTable(raw), dead: copyTable(dead), rollup1m: copyTable(rollup1m), rollup1h: copyTable(rollup1h), ledger: copyLedger(ledger) };
}

function copyTable({ parts, window, madeAt }: Table): Table {
  return { parts: [...parts], window: [...window], madeAt };
}

function copyLedger({ rows, madeAt, moments }: Ledger): Ledger {
  return { rows: [...rows], madeAt, moments: [...moments] };
}

function retry(message: string): Error {
  return Object.assign(new Error(message), { kind: 'retry' });
}
