import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { createTopic, kafkaBrokers, pipe, python, readAll } from '../../harness/kafka.ts';

test('the Python producer of docs/producers.md sends an event with its key and its time', async () => {
  const page = readFileSync(new URL('../../../docs/producers.md', import.meta.url), 'utf8');
  const [, code = ''] = /^```python\n([\s\S]*?)^```/m.exec(page) ?? [];
  const topic = await createTopic('documented');
  const ours = code.replace('kafka-1:9092', kafkaBrokers().join(',')).replace('"edge_logs"', JSON.stringify(topic));
  const before = Date.now();
  await pipe(await python(), ['-'], ours);
  const [{ message }] = (await readAll(topic)) as [Awaited<ReturnType<typeof readAll>>[number]];
  const event = JSON.parse(String(message.value)) as { project: string; timestamp: number };
  expect(String(message.key)).toBe(event.project);
  expect(message.time).toBe(Math.floor(event.timestamp / 1_000));
  expect(message.time).toBeGreaterThanOrEqual(before);
});
