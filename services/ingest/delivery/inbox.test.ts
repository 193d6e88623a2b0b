import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Inbox, type HeldRecord } from './inbox.ts';

function record(offset: number, bytes = 1): HeldRecord {
  return { offset, time: 0, key: null, value: null, headers: [], bytes };
}

/** offsets from 0 with holes, fetched in pieces; some pieces are fetched twice or overlap what was fetched before */
const fetches = fc.record({
  start: fc.nat(50),
  slots: fc.array(
    fc.oneof(
      { weight: 4, arbitrary: fc.integer({ min: 0, max: 300 }) },
      { weight: 1, arbitrary: fc.constant(undefined) },
    ),
    { maxLength: 40, size: 'max' },
  ),
  pieces: fc.array(fc.record({ size: fc.integer({ min: 1, max: 7 }), overlap: fc.nat(3) }), {
    maxLength: 30,
    size: 'max',
  }),
});

test('cuts follow each other without a hole or an overlap, hold every record once, and keep within the limits', () => {
  fc.assert(
    fc.property(
      fetches,
      fc.record({ maxRecords: fc.integer({ min: 1, max: 9 }), maxBytes: fc.integer({ min: 1, max: 1_500 }) }),
      ({ start, slots, pieces }, limits) => {
        const log = slots.flatMap((bytes, i) => (bytes === undefined ? [] : [record(start + i, bytes)]));
        const inbox = new Inbox(start);
        const taken: HeldRecord[] = [];
        let next = start;
        let fetched = start;
        for (const { size, overlap } of pieces) {
          const from = Math.max(start, fetched - overlap);
          const to = Math.min(from + size - 1, start + slots.length - 1);
          if (to < from) break;
          inbox.offer({ to, records: log.filter((r) => r.offset >= from && r.offset <= to) });
          fetched = Math.max(fetched, to + 1);
          expect(inbox.end).toBe(fetched);
          if (size % 2 === 0) continue;
          const cut = inbox.cut(limits);
          if (cut === undefined) {
            expect(inbox.end).toBe(inbox.next);
            continue;
          }
          expect(cut.first).toBe(next);
          expect(cut.last).toBeGreaterThanOrEqual(cut.first);
          expect(cut.records.every((r) => r.offset >= cut.first && r.offset <= cut.last)).toBe(true);
          expect(cut.records.length).toBeLessThanOrEqual(limits.maxRecords);
          if (cut.records.length > 1) expect(cut.bytes).toBeLessThanOrEqual(limits.maxBytes);
          expect(cut.bytes).toBe(cut.records.reduce((sum, r) => sum + r.bytes, 0));
          next = cut.last + 1;
          expect(inbox.next).toBe(next);
          taken.push(...cut.records);
        }
        const rest = log.filter((r) => r.offset >= next && r.offset < fetched);
        expect(inbox.size).toBe(rest.length);
        expect(inbox.bytes).toBe(rest.reduce((sum, r) => sum + r.bytes, 0));
        expect(taken).toEqual(log.filter((r) => r.offset < next));
      },
    ),
  );
});

test('cutAt gives the batch that ends there, however it was fetched, and nothing before it was', () => {
  fc.assert(
    fc.property(fetches, fc.nat(60), ({ start, slots, pieces }, length) => {
      const log = slots.flatMap((bytes, i) => (bytes === undefined ? [] : [record(start + i, bytes)]));
      const last = start + length;
      const inbox = new Inbox(start);
      for (const { size } of pieces) {
        const from = inbox.end;
        const to = Math.min(from + size - 1, start + slots.length - 1);
        if (to < from) break;
        expect(inbox.cutAt(inbox.end)).toBeUndefined();
        inbox.offer({ to, records: log.filter((r) => r.offset >= from && r.offset <= to) });
      }
      const cut = inbox.cutAt(last);
      if (inbox.end <= last) expect(cut).toBeUndefined();
      else {
        const records = log.filter((r) => r.offset <= last);
        expect(cut).toEqual({
          first: start,
          last,
          records,
          bytes: records.reduce((sum, r) => sum + r.bytes, 0),
        });
      }
    }),
  );
});

test('a batch of many records does not keep the ones before it in memory', () => {
  const inbox = new Inbox(0);
  for (let i = 0; i < 5_000; i++) inbox.offer({ to: i, records: [record(i)] });
  for (let i = 0; i < 4_999; i += 7) inbox.cut({ maxRecords: 7, maxBytes: 1e9 });
  expect(inbox.size).toBe(inbox.end - inbox.next);
});

test('what was cut is held until it is released', () => {
  const inbox = new Inbox(0);
  inbox.offer({ to: 1, records: [record(0, 500), record(1, 500)] });
  expect(inbox.bytes).toBe(1_000);
  const whole = inbox.bytes;
  expect(inbox.cut({ maxRecords: 1, maxBytes: 1e9 })?.bytes).toBe(whole / 2);
  expect([inbox.bytes, inbox.heldBytes]).toEqual([whole / 2, whole]);
  inbox.release();
  expect([inbox.bytes, inbox.heldBytes]).toEqual([whole / 2, whole / 2]);
});

test('a cut counts as written when it is released', () => {
  const inbox = new Inbox(5);
  inbox.offer({ to: 9, records: [record(6), record(8)] });
  inbox.cut({ maxRecords: 1, maxBytes: 1e9 });
  expect([inbox.next, inbox.written]).toEqual([7, 5]);
  inbox.release();
  expect([inbox.next, inbox.written]).toEqual([7, 7]);
});

test('what was fetched is given back when all of its records are written, in the order of its coming', () => {
  const inbox = new Inbox(0);
  const freed: number[] = [];
  for (const to of [3, 5, 8])
    inbox.offer({
      to,
      records: Array.from({ length: 9 }, (_, i) => record(i)).filter((r) => r.offset >= inbox.end && r.offset <= to),
      free: () => freed.push(to),
    });
  const write = (last: number): number[] => {
    inbox.cutAt(last);
    expect(freed).not.toContain(last);
    inbox.release();
    return freed;
  };
  expect(write(2)).toEqual([]);
  expect(write(3)).toEqual([3]);
  expect(write(7)).toEqual([3, 5]);
  expect(write(8)).toEqual([3, 5, 8]);
});
