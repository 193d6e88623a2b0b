import { pino } from 'pino';
import { afterEach, expect, test, vi } from 'vitest';
import { createKafka, fetchedRecords, retry, type Batch } from './client.ts';

function client(): { readonly kafka: ReturnType<typeof createKafka>; readonly lines: string[] } {
  const lines: string[] = [];
  const logger = pino(
    { level: 'trace' },
    {
      write: (line: string) => {
        lines.push(line);
      },
    },
  );
  return {
    kafka: createKafka({ brokers: ['127.0.0.1:1'], clientId: 'c', logger, maxDecompressedBytes: 1_000_000 }),
    lines,
  };
}

afterEach(() => {
  vi.restoreAllMocks();
});

test('creating producers, consumers and admins writes nothing to the log or the console', () => {
  const console_ = [vi.spyOn(console, 'log'), vi.spyOn(console, 'warn'), vi.spyOn(console, 'error')];
  const { kafka, lines } = client();
  kafka.producer();
  kafka.consumer({ groupId: 'g' });
  kafka.admin();
  expect(lines).toEqual([]);
  for (const spy of console_) expect(spy).not.toHaveBeenCalled();
});

test('our retries apply whatever NODE_ENV is: the last wait is 5 s, all waits take about 16 s', () => {
  let total = 0;
  for (
    let i = 0, wait: number = retry.initialRetryTime;
    i < retry.retries;
    i++, wait = Math.min(wait * retry.multiplier, retry.maxRetryTime)
  )
    total += wait;
  expect(total / 1000).toBeGreaterThan(14);
  expect(total / 1000).toBeLessThan(18);
});

test('records in the format before 0.11, which kafkajs reads, look like all others', () => {
  const message = (offset: string, key: Buffer | null, value: Buffer | null) => ({
    offset,
    timestamp: '5',
    key,
    value,
    attributes: 0,
    headers: {},
  });
  const messages = [
    message('7', Buffer.from('k'), Buffer.from('value')),
    message('8', null, Buffer.from('v')),
    message('9', Buffer.from('k'), null),
    message('10', null, null),
  ];
  const { records, to } = fetchedRecords({ messages, lastOffset: () => '10' } as unknown as Batch);
  expect(to).toBe(10);
  expect(
    records.map(({ offset, time, key, value, headers }) => [offset, time, key?.toString(), value?.toString(), headers]),
  ).toEqual([
    [7, 5, 'k', 'value', []],
    [8, 5, undefined, 'v', []],
    [9, 5, 'k', undefined, []],
    [10, 5, undefined, undefined, []],
  ]);
  expect([records[3]!.key, records[3]!.value]).toEqual([null, null]);
});

test('records in the format before 0.10, which has no times, have none', () => {
  const messages = [{ offset: '7', key: null, value: Buffer.from('v'), attributes: 0 }];
  const { records } = fetchedRecords({ messages, lastOffset: () => '7' } as unknown as Batch);
  expect(records.map(({ offset, time }) => [offset, time])).toEqual([[7, -1]]);
});

test('records of brokers before 2.3, which kafkajs reads, keep their headers', () => {
  const [a, b] = [Buffer.from('1'), Buffer.from('2')];
  const headers = { a, b: null, c: [a, b] };
  const messages = [{ offset: '7', timestamp: '5', key: null, value: Buffer.from('v'), attributes: 0, headers }];
  const { records } = fetchedRecords({ messages, lastOffset: () => '7' } as unknown as Batch);
  expect(records[0]!.headers).toEqual([
    ['a', a],
    ['b', null],
    ['c', a],
    ['c', b],
  ]);
});

test('what can be read ends at the last stable offset, in the old format at the high watermark', () => {
  const block = { offset: '4', records: [], stableEnd: 5, free: () => {} };
  const batch = { messages: [block], lastOffset: () => '4', highWatermark: '9' };
  expect(fetchedRecords(batch as unknown as Batch)).toMatchObject({ to: 4, end: 5 });
  const old = { offset: '4', timestamp: '0', key: null, value: null };
  const many = { ...batch, messages: Array.from({ length: 300_000 }, () => old) };
  expect(fetchedRecords(many as unknown as Batch)).toMatchObject({ to: 4, end: 9 });
});
