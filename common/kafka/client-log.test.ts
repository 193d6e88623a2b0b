import kafkajs from 'kafkajs';
import { expect, test } from 'vitest';
import { clientLogLine } from './client-log.ts';

const { ERROR, WARN, INFO } = kafkajs.logLevel;

const line = (level: Parameters<typeof clientLogLine>[0]['level'], message: string, extra: object = {}) =>
  clientLogLine({
    namespace: 'Consumer',
    level,
    label: '',
    log: { timestamp: '', logger: 'kafkajs', message, ...extra },
  });

test('ordinary lines of kafkajs become debug', () => {
  expect(line(INFO, 'Consumer has joined the group', { memberAssignment: { a: [0] } })).toEqual({
    level: 'debug',
    fields: { namespace: 'Consumer', detail: 'Consumer has joined the group', memberAssignment: { a: [0] } },
  });
});

test('rebalances and errors that are thrown to the caller become debug', () => {
  expect(line(WARN, 'The group is rebalancing, re-joining').level).toBe('debug');
  expect(line(ERROR, 'The coordinator is not aware of this member, re-joining the group').level).toBe('debug');
  expect(line(WARN, 'Limiting retries for the idempotent producer may invalidate EoS guarantees').level).toBe('debug');
  expect(line(ERROR, 'Response CreateTopics(key: 19, version: 3)', { error: 'Topic creation errors' }).level).toBe(
    'debug',
  );
});

test('a lost connection and a failed fetch become warnings without a stack', () => {
  const { level, fields } = line(ERROR, 'Connection error: connect ECONNREFUSED', {
    broker: 'a:1',
    stack: 'Error: at',
  });
  expect(level).toBe('warn');
  expect(fields).not.toHaveProperty('stack');
  expect(
    line(ERROR, 'Response Fetch(key: 1, version: 11)', { error: 'a record batch compressed with lz4 ...' }).level,
  ).toBe('warn');
});

test('a line that stops the consumer becomes an error with its stack', () => {
  const { level, fields } = line(ERROR, 'Crash: KafkaJSNonRetriableError: x', { groupId: 'g', stack: 'Error: at' });
  expect(level).toBe('error');
  expect(fields).toMatchObject({ groupId: 'g', stack: 'Error: at' });
});

test('contents of responses and messages never reach the log', () => {
  expect(
    line(WARN, 'x', { data: { secret: 1 }, payload: Buffer.from('secret'), error: new Error('why') }).fields,
  ).toEqual({ namespace: 'Consumer', detail: 'x', error: 'why' });
});
