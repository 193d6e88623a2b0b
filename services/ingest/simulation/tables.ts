import type { Event } from './kafka.ts';
import type { World } from './world.ts';

/**
 * Token semantics of ClickHouse's tables as the protocol relies on them. An insert is one part per table and partition.
 * Raw parts come first, then rollups, 1h after 1m. A part is left out while its table's window remembers its token and
 * partition; that keeps no later part from being written. test/integration/ingest/token-semantics.test.ts runs random
 * sequences of these operations here and on real engines, and compares.
 */
export interface Row {
  readonly event: Event;
  readonly incarnation: number;
  readonly batchLast: number;
  readonly evaluatedAt: number;
  readonly period: number;
}

const TARGETS = ['raw', 'dead', 'rollup1m', 'rollup1h'] as const;
export type Target = (typeof TARGETS)[number];

/** One part of a table: what one insert put into one of its partitions, all of it or nothing. */
export interface Part {
  readonly target: Target;
  readonly partition: string;
  readonly token: string;
  readonly rows: readonly Row[];
}

/** An insert: its parts are written one after the other, whether or not the client still waits. */
export interface Job {
  /** of the topic */
  readonly partitions: readonly number[];
  readonly parts: readonly Part[];
  readonly sentAt: readonly number[];
  written: number;
  isOnServer: boolean;
  isKilled: boolean;
}

interface Table {
  parts: Part[];
  /** the deduplication window: partition and token of the last parts */
  window: string[];
  /** parts ever written to it */
  ever: number;
}

export type Tables = ReturnType<typeof createTables>;

export function createTables(
  world: Pick<World, 'count' | 'trace'>,
  onPart: (part: Part) => void = () => {},
  windowSize = 24,
) {
  const tables = Object.fromEntries(
    TARGETS.map((t): [Target, Table] => [t, { parts: [], window: [], ever: 0 }]),
  ) as Record<Target, Table>;
  let others = 0;

  return {
    rows: (target: Target): Row[] => tables[target].parts.flatMap((p) => p.rows),
    partsEver: (target: Target): number => tables[target].ever,

    /** In the order in which the engine writes them. */
    partsOf(rows: readonly Row[], token: string): Part[] {
      const split = (target: Target, by: (row: Row) => string): Part[] =>
        [...Map.groupBy(rows, by)].map(([partition, of]) => ({ target, partition, token, rows: of }));
      return [
        ...split('raw', (r) => `day${r.event.day}`),
        ...split('rollup1m', (r) => `period${r.period}`),
        ...split('rollup1h', (r) => `period${r.period}`),
      ];
    },

    writePart(part: Part): void {
      const table = tables[part.target];
      const key = `${part.partition} ${part.token}`;
      if (table.window.includes(key)) {
        world.count('parts deduplicated');
        return;
      }
      world.trace('part', {
        target: part.target,
        partition: part.partition,
        token: part.token,
        offsets: part.rows.map((r) => `${r.event.partition}:${r.event.offset}`),
      });
      remember(table, key);
      table.parts.push(part);
      onPart(part);
    },

    othersWrite(parts: number): void {
      for (let i = 0; i < parts; i++) for (const target of TARGETS) remember(tables[target], `other ${others++}`);
    },

    replaceRollups(period: number, rows: readonly Row[]): void {
      for (const target of ['rollup1m', 'rollup1h'] as const) {
        tables[target].parts = tables[target].parts.filter((p) => p.partition !== `period${period}`);
        tables[target].parts.push({ target, partition: `period${period}`, token: 'built', rows });
      }
    },

    /** Retention takes the rows of these events, and what they added to rollups. */
    expire(events: ReadonlySet<Event>): void {
      for (const target of ['raw', 'rollup1m', 'rollup1h'] as const)
        tables[target].parts = tables[target].parts.map((p) => ({
          ...p,
          rows: p.rows.filter((r) => !events.has(r.event)),
        }));
    },

    copy: (): Record<Target, Table> => copyOf(tables),

    /** Tables restored from a backup have no window, unless it was a snapshot. */
    restore(backup: Record<Target, Table>, withWindows: boolean): void {
      Object.assign(tables, copyOf(backup));
      if (!withWindows) for (const target of TARGETS) tables[target].window = [];
    },
  };

  function remember(table: Table, key: string): void {
    table.ever++;
    table.window.push(key);
    if (table.window.length > windowSize) table.window.shift();
  }
}

function copyOf(tables: Record<Target, Table>): Record<Target, Table> {
  return Object.fromEntries(
    TARGETS.map((t) => [t, { parts: [...tables[t].parts], window: [...tables[t].window], ever: tables[t].ever }]),
  ) as Record<Target, Table>;
}
