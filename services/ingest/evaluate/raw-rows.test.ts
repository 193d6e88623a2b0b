import { expect, test } from 'vitest';
import { eventReaderOf, timeRangeAt } from '../../../common/evaluate/event.ts';
import { sourceOf } from '../../../common/sources.ts';
import { readNative } from '../../../test/harness/native-reader.ts';
import { lastRawInsert, rawInsert, rawRowWriter, type RawRows } from './raw-rows.ts';
import { freePiece } from './row-binary.ts';

const AT = Date.UTC(2026, 2, 1);
const PLACE = { topic: 't', partition: 1, incarnation: 2, batchLast: 99 };
const STAMP = { version: 2, evaluatedAt: AT, period: 0 };

interface Event {
  readonly project: string;
  /** milliseconds after AT */
  readonly after: number;
  readonly id?: string;
}

async function rowsOf(events: readonly Event[]): Promise<RawRows> {
  const source = sourceOf('auth_logs');
  const reader = eventReaderOf(source);
  const rows = rawRowWriter(source, PLACE, STAMP, reader);
  for (const [offset, { project, after, id }] of events.entries()) {
    const value = Buffer.from(JSON.stringify({ project, id, timestamp: (AT + after) * 1000 }));
    expect(reader.read(value, AT, timeRangeAt(AT, 90))).toBeUndefined();
    rows.write({ offset, time: AT, key: null, value, headers: [] }, value, true);
  }
  return await rows.take();
}

function offsetsOf(rows: RawRows): number[] {
  return readNative(rawInsert([rows]).pieces).map((row) => Number(row['kafka_offset']));
}

/** As ClickHouse compares the sorting key: Strings by their bytes. */
function inOrder(events: readonly Event[]): number[] {
  const keys = events.map(({ project, after, id }, offset) => ({
    offset,
    after,
    project: Buffer.from(project),
    id: Buffer.from(id ?? `t-1-${offset}`),
  }));
  return keys
    .toSorted((a, b) => a.project.compare(b.project) || a.after - b.after || a.id.compare(b.id))
    .map(({ offset }) => offset);
}

test('rows stand in the order of project, time and id, compared by their bytes', async () => {
  const events: Event[] = [
    { project: 'b', after: 0 },
    { project: 'a', after: 5, id: 'z' },
    { project: 'a', after: 5, id: 'y' },
    { project: 'a', after: 5, id: 'zz' },
    { project: 'a', after: -5, id: 'zzz' },
    { project: 'ab', after: 1 },
    { project: 'é', after: 1 },
    { project: '\u{ffff}', after: 1 },
    // four bytes in UTF-8, which sort behind the three of U+FFFF; its first UTF-16 unit sorts before it
    { project: '\u{10000}', after: 1 },
    { project: 'Z', after: 1, id: '\u{10000}' },
    { project: 'Z', after: 1, id: '\u{ffff}' },
    { project: 'Z', after: 1, id: 'x'.repeat(200) },
    ...Array.from({ length: 12 }, () => ({ project: 'without ids', after: 2 })),
  ];
  expect(offsetsOf(await rowsOf(events))).toEqual(inOrder(events));
});

test('many projects with many rows are sorted, and others run in between', async () => {
  const events = Array.from({ length: 9_000 }, (_, i): Event => ({
    project: `p${(i * 7) % 900}`,
    after: (i * 13) % 50,
    id: `${(i * 31) % 1_000}`,
  }));
  let turns = 0;
  let isOver = false;
  const count = (): void => {
    turns++;
    if (!isOver) setImmediate(count);
  };
  count();
  const rows = await rowsOf(events);
  isOver = true;
  expect(offsetsOf(rows)).toEqual(inOrder(events));
  expect(turns).toBeGreaterThan(3);
});

test.each([
  ['projects', (i: number): Event => ({ project: `p${(i * 7) % 5_001}`, after: 0 })],
  ['ids of one time', (i: number): Event => ({ project: 'p', after: 0, id: `${(i * 7) % 5_001}` })],
])('more than 5,000 %s stay in the order of their offsets: to sort them would delay others', async (_, event) => {
  const events = Array.from({ length: 5_001 }, (__, i) => event(i));
  expect(offsetsOf(await rowsOf(events))).toEqual(events.map((__, offset) => offset));
  const fewer = events.slice(0, 5_000);
  expect(offsetsOf(await rowsOf(fewer))).toEqual(inOrder(fewer));
});

test('rows keep their memory until their last insert has used them', async () => {
  const rows = await rowsOf([{ project: 'p', after: 0 }]);
  const { buffer } = rows.memory[0]!;
  const isFree = (): boolean => {
    const taken = Array.from({ length: 70 }, () => freePiece());
    return taken.some((piece) => piece.buffer === buffer);
  };
  for (const _ of rawInsert([rows]).pieces);
  expect(isFree()).toBe(false);
  const last = lastRawInsert([rows]).pieces;
  expect(last.next().done).toBe(false);
  expect(isFree()).toBe(false);
  expect(last.next().done).toBe(true);
  expect(isFree()).toBe(true);
});
