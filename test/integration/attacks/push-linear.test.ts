import { describe, expect, it } from 'vitest';
import { sources, type KnownSource } from '../../../common/sources.ts';
import { filled, superlinear } from '../../harness/doubling.ts';
import { eventWith } from '../../evaluate/messages.ts';
import { eventTexts } from '../../../services/push/body.ts';
import { namesAnother, readEvent } from '../../../services/push/event.ts';

// Guarantee: no body of push costs more than in proportion to its bytes, in whatever form and field they stand.

const MAX_BYTES = 16 * 1024 * 1024;
/** push reads no further */
const MAX_EVENTS = 100_000;

/** What push does with a body, but for the producer. */
function read(body: Buffer, source: KnownSource): number {
  let events = 0;
  try {
    for (const text of eventTexts(body)) {
      if (++events > MAX_EVENTS) break;
      const event = readEvent(text, source, MAX_BYTES);
      if (!('mistake' in event)) namesAnother(['a'.repeat(20)], event);
    }
  } catch {
    // a body that is none of the forms costs no more either
  }
  return events;
}

type Unit = string | ((i: number) => string);
/** What stands before, what is repeated, what stands behind. */
const values: readonly (readonly [string, Unit, string])[] = [
  ['"', 'x', '"'],
  ['"', '\\\\', '"'],
  ['"', '\\"', '"'],
  ['"', '\\u0061', '"'],
  ['"', ' ', '"'],
  ['"', 'é', '"'],
  ['"', '/', '"'],
  ['"', 'a', ''],
  ['', '1', ''],
  ['-', '1', '.5'],
  ['1.', '0', ''],
  ['', ' ', '1'],
  ['[', '0,', '0]'],
  ['[', '{},', '{}]'],
  ['[', '[],', '[]]'],
  ['[', ',', ']'],
  ['', '[', ''],
  ['', '{"a":', ''],
  ['', '{', ''],
  ['', '[', ']'],
  ['{', (i) => `"k${i}":0,`, '"z":0}'],
  ['{', '"project":"a",', '"z":0}'],
  ['{', '"\\u0070roject":1,', '"z":0}'],
  ['{"', 'k', '":0}'],
  ['{"request":{"url":"https://', 'a', '.co"}}'],
  ['{"request":{"url":"', 'a:', '"}}'],
  ['{"request":[', '{"url":0},', '{}]}'],
  ['[{"request":{', '"url":1,', '"url":"x"}}]'],
];
const [edge, storage] = [sources[0], sources[6]];

describe('an event', () => {
  it.each([
    ['project', edge],
    ['timestamp', edge],
    ['metadata', edge],
    ['\\u0070roject', edge],
    ['metadata', storage],
  ] as const)('is read in linear time, whatever its %s is', async (field, source) => {
    for (const [before, unit, after] of values) {
      expect(
        await superlinear(
          (bytes) => Buffer.from(filled(bytes, `{"${field}":${before}`, unit, `${after},"project":"p"}`)),
          (body) => read(body, source),
        ),
        `${before}${String(unit)}${after}`,
      ).toBeUndefined();
    }
  });
});

describe('every column of a raw table', () => {
  const fillings: readonly (readonly [string, Unit, string])[] = [
    ['"', 'x', '"'],
    ['"', '\\u0061', '"'],
    ['"', '\\\\', '"'],
    ['"', ' ', '"'],
    ['"', '1', '"'],
    ['"1.', '0', '"'],
    ['"', '/storag', '"'],
    ['"', 'abcdefghijklmnopqrs/', '"'],
    ['', '7', ''],
    ['1.', '0', ''],
    ['[', '{"a":0},', '{}]'],
    ['{', '"a":0,', '"z":0}'],
  ];
  // the three have every kind of column
  it.each(['edge_logs', 'postgres_logs', 'function_edge_logs'] as const)(
    'of %s is read in linear time',
    async (name) => {
      const source = sources.find((one) => one.name === name)!;
      const places = [...new Set(['timestamp', 'id', ...source.columns.map(({ path }) => path)])].filter(
        (path, _, all) => !all.some((other) => other.startsWith(`${path}.`)),
      );
      const event = eventWith(name, Object.fromEntries(places.map((path) => [path, '@']))).split('@');
      expect(event.length).toBe(places.length + 1);
      for (const [before, unit, after] of fillings)
        expect(
          await superlinear(
            (bytes) => Buffer.from(event.join(filled(bytes / places.length, before, unit, after))),
            (body) => read(body, source),
          ),
          `${before}${String(unit)}${after}`,
        ).toBeUndefined();
    },
  );
});

describe('a body', () => {
  it.each<[form: string, before: string, unit: Unit, after: string]>([
    ['list', '[', '{"project":"p"},', '{}]'],
    ['list of numbers', '[', '1,', '1]'],
    ['list of nothing', '[', ',', ']'],
    ['list that never ends', '[', '{"project":"p"},', ''],
    ['list within lists', '', '[', ''],
    ['batch', '{"batch":[', '{"project":"p"},', '{}]}'],
    ['batch among batches', '{', '"batch":[{"project":"p"}],', '"batch":[]}'],
    ['batch of brackets', '{"batch":', '[', ''],
    ['event a line', '', '{"project":"p"}\n', ''],
    ['broken event a line', '', '{"project":\n', ''],
    ['quote a line', '', '"\n', ''],
    ['empty lines', '', '\n', ''],
    ['lines of blanks', '', ' \r\n', '{}'],
    ['blanks', '', ' ', ''],
    ['quotes', '', '"', ''],
    ['backslashes', '"', '\\', ''],
    ['escaped quotes', '{"a":"', '\\"', ''],
    ['opened objects', '', '{', ''],
    ['closed objects', '', '}', ''],
    ['names without values', '{', '"a",', '}'],
  ])('(%s) is taken apart in linear time', async (_, before, unit, after) => {
    expect(
      await superlinear(
        (bytes) => Buffer.from(filled(bytes, before, unit, after)),
        (body) => read(body, sources[0]),
      ),
    ).toBeUndefined();
  });
});
