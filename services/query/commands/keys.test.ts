import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import { checkArguments } from '../../../common/command/arguments.ts';
import { readSettings } from '../../../common/config/settings.ts';
import { UsageError } from '../../../common/errors.ts';
import { createLogger } from '../../../common/logger.ts';
import { argsOf } from '../../../test/harness/command.ts';
import { temporaryFolder } from '../../../test/harness/temporary-folder.ts';
import { readOverlap } from '../keys/key-table.ts';
import { keysCommand } from './keys.ts';

const create = (...words: string[]): unknown =>
  argsOf(keysCommand, 'create', '--name', 'n', '--scope', 'query', ...words);

test('scopes and projects may be repeated or separated by commas', () => {
  expect(create('--scope', 'ingest,query:logs.all', '--project', 'a, b', '--project', 'c')).toMatchObject({
    scopes: ['query', 'ingest', 'query:logs.all'],
    projects: ['a', 'b', 'c'],
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

test('a rotation without an overlap has one of an hour, as over HTTP', () => {
  expect(argsOf(keysCommand, 'rotate', 'an-id')).toMatchObject({ overlapSeconds: 3_600 });
  expect(readOverlap({})).toEqual({ seconds: 3_600 });
});

test('a key is created, also if a definition of the operator is wrong', async () => {
  const clickhouse = { execute: () => Promise.resolve() } as unknown as ClickHouse;
  const folder = temporaryFolder();
  onTestFinished(() => folder.remove());
  // a definition without its .sql
  writeFileSync(join(folder.path, 'half.yaml'), '');
  const settings = readSettings({ ENDPOINTS_DIR: folder.path });
  const args = argsOf(keysCommand, 'create', '--name', 'n', '--scope', 'query:nope');
  const result = await keysCommand.run({ clickhouse, settings, logger: createLogger('silent') }, args);
  expect(keysCommand.print(result).toString().trimEnd().split('\n')).toHaveLength(2);
});

test('a scope may name an endpoint that does not exist yet, and the operator is told', async () => {
  const clickhouse = { execute: () => Promise.resolve() } as unknown as ClickHouse;
  const context = { clickhouse, settings: readSettings({}), logger: createLogger('silent') };
  const args = argsOf(keysCommand, 'create', '--name', 'n', '--scope', 'ingest,query:nope,query:logs.all');
  const result = await keysCommand.run(context, args);
  const lines = keysCommand.print(result).toString().trimEnd().split('\n');
  expect(lines.slice(2)).toEqual(['there is no endpoint nope yet: neither a built-in one nor one in ENDPOINTS_DIR']);
  expect(keysCommand.json?.(result)).not.toHaveProperty('missingEndpoints');
});
