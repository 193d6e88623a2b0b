import { describe, expect, test } from 'vitest';
import { Inbox } from '../delivery/inbox.ts';
import { StuckLanes, STUCK_MS } from './stuck-lanes.ts';
import { Turns, TURN_MS } from './turns.ts';

const MB = 2 ** 20;
const LIMITS = { maxBytes: 25 * MB, maxRecords: 25_600 };
/** records of 2.4 kB in a fetch of 2 MiB that the producers compressed to a fifth */
const FETCHED = 4_000;
const VALUE = Buffer.alloc(2_400);
/** linger.ts */
const FILLING_MS = 2_000;
const RECORDS_PER_SECOND = 20;
const BACKLOG = 100_000;

function open(target: string, log = 0) {
  const lane = { state: 'running' as const, isRecovering: false, inbox: new Inbox(0) };
  return { lane, target, end: 0, lastFetch: { bytes: 0, records: 0 }, log, isPaused: true, seenAt: 0 };
}
type Fake = ReturnType<typeof open>;

function fetchInto(p: Fake): void {
  const { inbox } = p.lane;
  p.end = p.log;
  const records = Array.from({ length: Math.min(p.log - inbox.end, FETCHED) }, (_, i) => ({
    offset: inbox.end + i,
    time: 0,
    key: null,
    value: VALUE,
    headers: [],
    bytes: VALUE.length,
  }));
  if (records.length === 0) return;
  const before = inbox.bytes;
  inbox.offer({ to: records.at(-1)!.offset, records });
  p.lastFetch = { bytes: inbox.bytes - before, records: records.length };
}

describe('a target', () => {
  const [one, other] = [open('edge_logs s1', 10), open('edge_logs s1', 10)];
  const all = [one, other];
  const lanes = new StuckLanes<Fake>();
  const seen = (): unknown => [[...lanes.targets], all.map((p) => lanes.isLate(p))];

  test('is stuck when a batch is late and nothing of it was stored meanwhile', () => {
    fetchInto(one);
    one.lane.inbox.cut(LIMITS);
    lanes.look(all, 0);
    lanes.look(all, STUCK_MS - 1);
    expect(seen()).toEqual([[], [false, false]]);
    lanes.look(all, STUCK_MS);
    expect(seen()).toEqual([['edge_logs s1'], [true, false]]);
    expect(lanes.has(other)).toBe(true);
  });

  test('works again when another lane stored a batch, and the late one stays late', () => {
    fetchInto(other);
    other.lane.inbox.cut(LIMITS);
    lanes.look(all, STUCK_MS + 1);
    other.lane.inbox.release();
    lanes.look(all, STUCK_MS + 2);
    expect(seen()).toEqual([[], [true, false]]);
  });

  test('is free of a lane that ended with its batch unwritten', () => {
    lanes.look(all, 3 * STUCK_MS);
    expect(seen()).toEqual([['edge_logs s1'], [true, false]]);
    lanes.look([other], 3 * STUCK_MS);
    expect([lanes.isAny, lanes.has(other)]).toEqual([false, false]);
  });
});

/**
 * Five minutes in which batches of `away` are not written after the first ten seconds. Returns how many batches were
 * held at most.
 */
function fiveMinutes(away: readonly Fake[], well: readonly Fake[]): number {
  let now = 0;
  const turns = new Turns<Fake>(LIMITS, () => now);
  // Kafka assigns them in no order
  const all = [...away, ...well]
    .map((p, i) => ({ p, place: (i * 7) % 11 }))
    .toSorted((a, b) => a.place - b.place)
    .map(({ p }) => p);
  let most = 0;
  for (let second = 0; second < 300; second++) {
    for (const p of all) p.log += RECORDS_PER_SECOND;
    for (let part = 0; part < 4; part++) {
      now += TURN_MS / 4;
      turns.pass(all);
      for (const p of all) {
        const may = turns.mayFetch(p, p.isPaused ? 0.8 : 1);
        p.isPaused = !may;
        if (!may) continue;
        fetchInto(p);
        turns.fetched(p);
        turns.pass(all);
      }
      for (const p of all) {
        const { inbox } = p.lane;
        if (inbox.end === inbox.next) p.seenAt = now;
        const isDue = !turns.has(p) || inbox.bytes >= LIMITS.maxBytes || now - p.seenAt >= FILLING_MS;
        if (inbox.written !== inbox.next || !isDue) continue;
        inbox.cut(LIMITS);
        p.seenAt = now;
      }
      most = Math.max(
        most,
        all.reduce((sum, p) => sum + p.lane.inbox.heldBytes, 0),
      );
      turns.pass(all);
      for (const p of all) if (well.includes(p) || second < 10) p.lane.inbox.release();
    }
  }
  return most / LIMITS.maxBytes;
}

const topics = (n: number): string[] => Array.from({ length: n }, (_, i) => `topic${i}`);
const times = (n: number, target: string, log: number): Fake[] => Array.from({ length: n }, () => open(target, log));

describe('while nothing can be written of', () => {
  test.each([
    ['one topic, others with a backlog go on', times(12, 'a', BACKLOG), times(12, 'b', BACKLOG)],
    [
      'two topics, quiet ones go on',
      [...times(6, 'a', BACKLOG), ...times(6, 'b', BACKLOG)],
      [...times(12, 'c', 0), ...times(1, 'd', 0)],
    ],
    [
      'the only partitions of six topics, other topics go on',
      topics(6).flatMap((topic) => times(1, topic, BACKLOG)),
      times(3, 'z', 0),
    ],
    [
      'one shard of two, the other one writes its backlog',
      topics(9).flatMap((topic) => times(4, `${topic} s1`, BACKLOG)),
      topics(9).flatMap((topic) => times(4, `${topic} s2`, BACKLOG)),
    ],
    [
      'one shard of two, the other one goes on where it is quiet',
      topics(9).flatMap((topic) => times(4, `${topic} s1`, BACKLOG)),
      topics(9).flatMap((topic) => times(4, `${topic} s2`, 0)),
    ],
  ])('%s', (_, away, well) => {
    const most = fiveMinutes(away, well);
    const waiting = well.map((p) => p.log - p.lane.inbox.written);
    expect(Math.max(...waiting)).toBeLessThanOrEqual(RECORDS_PER_SECOND * 60);
    expect(most).toBeLessThan(8);
  });

  test('all topics, four batches are held, and a fetch of some topics', () => {
    const all = topics(9).flatMap((topic) => times(4, topic, BACKLOG));
    expect(fiveMinutes(all, [])).toBeLessThan(6);
  });
});
