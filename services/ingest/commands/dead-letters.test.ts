import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { UsageError } from '../../../common/command/command.ts';
import { reasons } from '../record.ts';
import { deadLettersCommand } from './dead-letters.ts';

const read = (values: Record<string, string | boolean>, ...positionals: string[]): unknown =>
  deadLettersCommand.readArgs(values, positionals);

test('words of a call become what is asked', () => {
  expect(read({}, 'list')).toEqual({ do: 'list', filter: {}, limit: 1_000 });
  expect(read({ topic: 't', reason: 'too_large', open: true, limit: '5' }, 'list')).toEqual({
    do: 'list',
    filter: { topic: 't', reason: 'too_large', open: true },
    limit: 5,
  });
  expect(read({}, 'show', 't', '0', '123456789012345678')).toEqual({
    do: 'show',
    at: { topic: 't', partition: 0, offset: '123456789012345678' },
  });
  expect(read({}, 'replay', 't', '0', '1')).toEqual({ do: 'replay', at: { topic: 't', partition: 0, offset: '1' } });
  expect(read({ topic: 't', reason: 'unknown_schema' }, 'replay')).toEqual({
    do: 'replay_all',
    filter: { topic: 't', reason: 'unknown_schema' },
  });
});

test.each([
  ['nothing', {}, []],
  ['a limit of none', { limit: '0' }, ['list']],
  ['replay of everything', {}, ['replay']],
  ['no offset', {}, ['show', 't', '0']],
  ['a partition that is none', {}, ['show', 't', 'x', '1']],
  ['a word too many', {}, ['show', 't', '0', '1', '2']],
])('%s is refused', (_, values, positionals) => {
  expect(() => read(values, ...positionals)).toThrow(UsageError);
});

test('a misspelt reason is refused with those that there are: it would find nothing, as if all were well', () => {
  for (const verb of ['list', 'replay'])
    expect(() => read({ topic: 't', reason: 'to_large' }, verb)).toThrow(`--reason takes one of ${reasons.join(', ')}`);
});

test('the README has every reason', () => {
  const readme = readFileSync(new URL('../../../README.md', import.meta.url), 'utf8');
  for (const reason of reasons) expect(readme).toContain(`\`${reason}\``);
});
