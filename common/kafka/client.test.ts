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

test('what can be read ends at the last stable offset, not at the high watermark', () => {
  const block = { offset: '4', records: [], stableEnd: 5, free: () => {} };
  const batch = { messages: [block], lastOffset: () => '4', highWatermark: '9' };
  expect(fetchedRecords(batch as unknown as Batch)).toMatchObject({ to: 4, end: 5 });
});
