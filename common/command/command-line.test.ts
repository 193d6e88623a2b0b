import { expect, test } from 'vitest';
import { UsageError } from '../errors.ts';
import { helpOf, readCommandLine } from './command-line.ts';
import { form, type Command } from './command.ts';

const TEXT = { type: 'string', maxLength: 3 };

const command: Pick<Command, 'name' | 'about' | 'forms'> = {
  name: 'pets',
  about: 'Pets are kept.',
  forms: {
    list: form({
      help: 'lists pets',
      options: { kind: { value: 'KIND' }, alive: {} },
      schema: { properties: { kind: TEXT, alive: { type: 'boolean' } }, required: ['alive'] },
      read: ({ kind, alive }) => ({ action: 'list', alive, ...(kind !== undefined && { kind }) }),
    }),
    feed: form({
      help: 'feeds one pet',
      words: ['NAME'],
      options: { food: { value: 'FOOD', isRequired: true, isRepeatable: true } },
      schema: { properties: { name: TEXT, food: { type: 'array', items: TEXT } }, required: ['name', 'food'] },
      read: ({ food }, [name]) => ({ action: 'feed', name, food }),
    }),
    feed_all: form({ help: 'feeds all pets', action: 'feed', read: () => ({ action: 'feed_all' }) }),
    train: form({
      help: 'trains one pet',
      words: ['NAME'],
      hasAnyOption: true,
      schema: { properties: { name: TEXT, tricks: { type: 'object' } }, required: ['name', 'tricks'] },
      read: (_, [name], tricks) => ({ action: 'train', name, tricks }),
    }),
  },
};
const read = (words: string): unknown => readCommandLine(command, words.split(' '));

test('the first word and the number of words choose the form, which gets its options and words', () => {
  const line = { url: undefined, isJson: false };
  expect(read('list')).toEqual({ ...line, args: { action: 'list', alive: false } });
  expect(read('--alive list --kind=cat --json')).toEqual({
    ...line,
    isJson: true,
    args: { action: 'list', alive: true, kind: 'cat' },
  });
  expect(read('feed tom --food a --food b --url http://x')).toEqual({
    ...line,
    url: 'http://x',
    args: { action: 'feed', name: 'tom', food: ['a', 'b'] },
  });
  expect(read('feed')).toEqual({ ...line, args: { action: 'feed_all' } });
  expect(read('train tom --sit 3 --rise=now')).toEqual({
    ...line,
    args: { action: 'train', name: 'tom', tricks: { sit: '3', rise: 'now' } },
  });
});

test.each([
  ['groom', 'Expected one of: list, feed NAME --food FOOD..., feed, train NAME'],
  ['feed tom jerry', 'Expected one of: list, feed NAME --food FOOD..., feed, train NAME'],
  ['feed tom', '--food FOOD is missing'],
  ['feed --food a', '--food cannot be used with feed'],
  ['list --sit 3', '--sit cannot be used with list'],
  ['list --kind', "'--kind <value>' argument missing"],
  ['list --alive=yes', "'--alive' does not take an argument"],
  ['list --not-a-name', "Unknown option '--not-a-name'"],
  ['list --kind unicorn', 'the arguments are wrong: kind must have at most 3 characters'],
  ['list --kind cat --kind=dog', '--kind is given more than once'],
  ['train tom --sit 3 --sit 4', '--sit is given more than once'],
  ['list --url http://x --url http://y', '--url is given more than once'],
  ['list --url 127.0.0.1:4000', '--url takes an address such as http://127.0.0.1:4000'],
  ['list --url localhost:4000', '--url takes an address such as http://127.0.0.1:4000'],
  ['list --url=', '--url takes an address such as http://127.0.0.1:4000'],
])('"%s" is refused with the reason', (words, message) => {
  expect(() => read(words)).toThrow(UsageError);
  expect(() => read(words)).toThrow(message);
});

test("an unknown option is named without Node's hint about words that begin with a dash", () => {
  expect(() => read('list --not-a-name')).toThrow(/^Unknown option '--not-a-name'$/);
});

test('a command without actions takes no words', () => {
  const alone = { forms: { '': form({ help: 'counts', read: () => ({}) }) } };
  expect(readCommandLine(alone, [])).toMatchObject({ args: {} });
  expect(() => readCommandLine(alone, ['x'])).toThrow('Unexpected arguments');
});

test('help wins over mistakes and shows every form with its options', () => {
  expect(read('groom --help')).toBe('help');
  expect(read('-h')).toBe('help');
  expect(helpOf(command)).toContain(`  npm run pets -- list [--kind KIND] [--alive]
      lists pets
  npm run pets -- feed NAME --food FOOD...
      feeds one pet
  npm run pets -- feed
      feeds all pets
  npm run pets -- train NAME [--parameter value...]
      trains one pet

Pets are kept.

  --url URL `);
});

test('help says how stdout is nothing but the JSON document, because npm writes lines of its own there', () => {
  expect(helpOf(command)).toContain('npm run --silent pets');
});

test('help has the exit code of a signal where a command says something at one', () => {
  expect(helpOf(command)).toMatch(/78 a wrong setting\.\n$/);
  expect(helpOf({ ...command, interrupted: () => 'half fed' })).toMatch(
    /78 a wrong setting, 130 ended by a signal\.\n$/,
  );
});
