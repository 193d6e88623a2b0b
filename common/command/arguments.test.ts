import { expect, test } from 'vitest';
import { checkArguments, PARTITION, TOPIC } from './arguments.ts';
import { form } from './command.ts';

const command = {
  forms: {
    list: form({
      help: '',
      schema: { properties: { topic: TOPIC, partition: PARTITION, names: { type: 'array' } }, required: ['topic'] },
      read: () => ({}),
    }),
  },
};

test.each([
  [[], 'they must be an object'],
  [{ action: 'list' }, 'topic is missing'],
  [{ action: 'list', topic: 't', extra: 1 }, 'extra is not known'],
  [{ action: 'list', topic: 'a b' }, 'topic has a form that is not allowed'],
  [
    { action: 'list', topic: 't', partition: 'x', names: 'n' },
    'partition must be a whole number; names must be a list',
  ],
  [{ action: 'list', topic: 't', partition: -1 }, 'partition must be at least 0'],
  [{ action: 'list', topic: 't', partition: 2 ** 31 }, 'partition must be at most 2147483647'],
])('wrong arguments are named in plain words: %j', (given, words) => {
  expect(() => checkArguments(command, given)).toThrow(`the arguments are wrong: ${words}`);
});
