import { expect, test } from 'vitest';
import { checksum } from '../evaluate/record.ts';
import type { HeldRecord } from './inbox.ts';
import { Intake } from './intake.ts';

function record(offset: number, value: string): HeldRecord {
  return { offset, time: 0, key: null, value: Buffer.from(value), headers: [], bytes: 1 };
}

function createIntake() {
  const asked: number[] = [];
  return { asked, intake: new Intake({ fetchFrom: (offset) => asked.push(offset) }) };
}

test("after another record at the ledger's end, nothing of that log is taken until the partition is taken again", () => {
  const { intake } = createIntake();
  intake.open(5, 0, { offset: 4, time: 0, checksum: checksum(record(4, 'ours')) });
  expect(intake.offer({ at: 4, to: 4, records: [record(4, 'another')] })).toBe(false);
  expect(intake.retake).toBe('another');
  expect(intake.offer({ at: 5, to: 5, records: [record(5, 'another')] })).toBe(false);
  expect(intake.inbox.size).toBe(0);
});

test("a log without a record at the ledger's end is compared, whether records follow there or not", () => {
  const after = createIntake().intake;
  after.open(5, 0, { offset: 4, time: 0, checksum: checksum(record(4, 'ours')) });
  expect(after.offer({ at: 4, to: 5, records: [record(5, 'a')] })).toBe(false);
  expect(after.retake).toBe('missing');
  const { intake } = createIntake();
  intake.open(5, 0, { offset: 4, time: 0, checksum: checksum(record(4, 'ours')) });
  expect(intake.offer({ at: 4, to: 5, records: [] })).toBe(false);
  expect(intake.retake).toBe('missing');
});

test('offsets without a record are passed over only by a fetch from the offset that was asked for', () => {
  const { intake } = createIntake();
  intake.open(5, 0, undefined);
  expect(intake.offer({ at: 5, to: 6, records: [] })).toBe(true);
  expect([intake.inbox.end, intake.retake]).toEqual([5, undefined]);
  // a fetch from before a rejoin, when more had been read
  expect(intake.offer({ at: 10, to: 10, records: [] })).toBe(false);
  expect([intake.inbox.end, intake.retake]).toEqual([5, 'elsewhere']);
});

test('a comparison goes on behind offsets without a record', () => {
  const { intake, asked } = createIntake();
  intake.peek(3);
  expect(intake.offer({ at: 3, to: 7, records: [] })).toBe(true);
  expect(intake.peeked).toEqual({ at: 3, to: 7, records: [] });
  intake.peek(8);
  expect(intake.offer({ at: 8, to: 8, records: [record(8, 'a')] })).toBe(true);
  expect(asked).toEqual([3, 8]);
  expect(intake.retake).toBeUndefined();
});
