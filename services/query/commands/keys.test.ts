import { expect, test } from 'vitest';
import { checkArguments } from '../../../common/command/arguments.ts';
import { UsageError } from '../../../common/errors.ts';
import { argsOf } from '../../../test/harness/command.ts';
import { keysCommand } from './keys.ts';

const create = (...words: string[]): unknown =>
  argsOf(keysCommand, 'create', '--name', 'n', '--scope', 'query', ...words);

test('scopes and projects may be repeated', () => {
  expect(create('--scope', 'ingest', '--scope', 'query:logs.all', '--project', 'a', '--project', 'c')).toMatchObject({
    scopes: ['query', 'ingest', 'query:logs.all'],
    projects: ['a', 'c'],
  });
  expect(create()).toMatchObject({ projects: [] });
});

test('an empty project is refused, because a key without projects sees all of them', () => {
  for (const project of ['', ' ', ',', 'a,']) expect(() => create('--project', project), project).toThrow(UsageError);
});

test('an overlap that is not a whole number is refused: an empty one would end the old key at once', () => {
  const rotate = (overlap: string): unknown => argsOf(keysCommand, 'rotate', 'an-id', `--overlap=${overlap}`);
  expect(rotate('0')).toMatchObject({ overlapSeconds: 0 });
  for (const overlap of ['', ' ', '-1', '1e3', '0x10', '1.5', '2592001'])
    expect(() => rotate(overlap), overlap).toThrow(UsageError);
});

test('a running service refuses an overlap of more than 30 days too', () => {
  const check = (overlapSeconds: number): void =>
    checkArguments(keysCommand, { action: 'rotate', id: 'an-id', overlapSeconds });
  check(30 * 86_400);
  expect(() => check(30 * 86_400 + 1)).toThrow('overlapSeconds must be at most 2592000');
});

test('a rotation without an overlap has one of an hour', () => {
  expect(argsOf(keysCommand, 'rotate', 'an-id')).toMatchObject({ overlapSeconds: 3_600 });
});
