import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { UsageError } from '../../../common/errors.ts';
import { argsOf } from '../../../test/harness/command.ts';
import { reasons } from '../evaluate/record.ts';
import { deadLettersCommand } from './dead-letters.ts';

const read = (words: string): unknown => argsOf(deadLettersCommand, ...words.split(' '));

test('a command line becomes the arguments of its action', () => {
  expect(read('list')).toEqual({ action: 'list', filter: {}, limit: 1_000 });
  expect(read('list --topic t --reason too_large --open --limit 5')).toEqual({
    action: 'list',
    filter: { topic: 't', reason: 'too_large', open: true },
    limit: 5,
  });
  expect(read('show t 0 123456789012345678')).toEqual({
    action: 'show',
    at: { topic: 't', partition: 0, offset: '123456789012345678' },
  });
  for (const offset of ['0', '999999999999999999'])
    expect(read(`show t 0 ${offset}`)).toMatchObject({ at: { offset } });
  expect(read('replay t 0 1')).toEqual({ action: 'replay', at: { topic: 't', partition: 0, offset: '1' } });
  expect(read('replay --topic t --reason unknown_schema')).toEqual({
    action: 'replay_all',
    filter: { topic: 't', reason: 'unknown_schema' },
  });
});

test.each([
  ['no action', ''],
  ['a limit of zero', 'list --limit 0'],
  ['a replay of every topic', 'replay'],
  ['a missing offset', 'show t 0'],
  ['a partition that is no number', 'show t x 1'],
  ['an offset with leading zeros', 'show t 0 007'],
  ['an offset of 19 digits', 'show t 0 1000000000000000000'],
  ['a word too many', 'show t 0 1 2'],
  ['an option of another action', 'show t 0 1 --reason too_large'],
])('%s is refused', (_, words) => {
  expect(() => read(words)).toThrow(UsageError);
});

test('a misspelt reason is refused with the list of reasons, because it would find nothing', () => {
  for (const action of ['list', 'replay'])
    expect(() => read(`${action} --topic t --reason to_large`)).toThrow(`reason must be one of ${reasons.join(', ')}`);
});

test('docs/producers.md has every reason', () => {
  const page = readFileSync(new URL('../../../docs/producers.md', import.meta.url), 'utf8');
  for (const reason of reasons) expect(page).toContain(`\`${reason}\``);
});

test('--json has every offset as a number, and says whether there are more', () => {
  const letter = { topic: 't', partition: 0, offset: 7 } as never;
  const next = { topic: 't', incarnation: 0, partition: 0, offset: '7' };
  const json = (of: typeof next | null): unknown => deadLettersCommand.json?.({ dead_letters: [letter], next: of });
  expect([json(null), json(next)]).toEqual([{ dead_letters: [letter] }, { dead_letters: [letter], more: true }]);
});

test.each([
  [0, '1970-01-01T00:00:00.000Z'],
  [8_640_000_000_000_000, '+275760-09-13T00:00:00.000Z'],
  // Kafka has no time for it, or one that no Date can hold
  [-1, null],
  [Number.MAX_SAFE_INTEGER, null],
])('a letter whose record has the time %d is shown', async (time, expected) => {
  const row = { source: 'edge_logs', batch_last: 0, incarnation: 0, reason: 'not_an_event', detail: '' };
  const letter = { ...row, record_time: time, key: null, headers: [], value: '5b5d' };
  const clickhouse = { read: () => Promise.resolve({ body: Buffer.from(JSON.stringify(letter)) }) };
  const context = { clickhouse } as unknown as Parameters<typeof deadLettersCommand.run>[0];
  expect(await deadLettersCommand.run(context, argsOf(deadLettersCommand, 'show', 't', '0', '1'))).toMatchObject({
    record_time: expected,
    value_base64: 'W10=',
  });
});
