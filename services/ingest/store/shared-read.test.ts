import { expect, test } from 'vitest';
import { shared } from './shared-read.ts';

test('those who ask at a time share one read, and who asks later never gets one that was sent before', async () => {
  const answers = [Promise.withResolvers<string>(), Promise.withResolvers<string>()];
  let reads = 0;
  const read = shared(() => answers[reads++]!.promise);
  const first = [read(), read()];
  await expect.poll(() => reads).toBe(1);
  const later = read();
  await expect.poll(() => reads).toBe(2);
  answers[0]!.resolve('sent first');
  answers[1]!.resolve('sent later');
  expect(await Promise.all([...first, later])).toEqual(['sent first', 'sent first', 'sent later']);
});

test('a read that failed fails for those who share it, and not for the next one', async () => {
  let fails = true;
  const read = shared(async () => {
    if (fails) throw new Error('unavailable');
    return 'there';
  });
  const failed = { status: 'rejected', reason: new Error('unavailable') };
  expect(await Promise.allSettled([read(), read()])).toEqual([failed, failed]);
  fails = false;
  expect(await read()).toBe('there');
});
