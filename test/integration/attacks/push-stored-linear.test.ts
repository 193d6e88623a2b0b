import { describe, expect, it } from 'vitest';
import { elements, members, nestedList } from '../../../common/json-text.ts';
import { BUILT_IN, readDefinitions } from '../../../services/query/definition/definition.ts';
import { readParams } from '../../../services/query/definition/params.ts';
import { filled, superlinear } from '../../harness/doubling.ts';

// Guarantee: no stored event and no parameter costs more than in proportion to its bytes. (HTTP takes less of a
// parameter than is tried here.)

type Unit = string | ((i: number) => string);

/** Valid JSON, as only that is stored. */
const stored: readonly (readonly [name: string, before: string, unit: Unit, after: string])[] = [
  ['letters', '{"a":"', 'x', '"}'],
  ['escapes', '{"a":"', '\\u0061', '"}'],
  ['backslashes', '{"a":"', '\\\\', '"}'],
  ['escaped quotes', '{"a":"', '\\"', '"}'],
  ['a long name', '{"', 'k', '":0}'],
  ['digits', '{"a":', '1', '}'],
  ['names', '{', (i) => `"k${i}":0,`, '"z":0}'],
  ['one name again and again', '{', '"a":{},', '"z":0}'],
  ['escaped names', '{', '"\\u0061":0,', '"z":0}'],
  ['empty objects', '{"a":[', '{},', '{}]}'],
  ['empty lists', '{"a":[', '[],', '[]]}'],
  ['numbers', '{"a":[', '0,', '0]}'],
  ['objects of objects', '{"a":[', '{"b":{"c":{"d":0}}},', '{}]}'],
  ['512 levels again and again', '{"a":[', `${'{"a":'.repeat(500)}0${'}'.repeat(500)},`, '0]}'],
  ['blanks', '{"a":', ' ', '0}'],
];

describe('an event that is stored', () => {
  it.each(stored)('of %s is made into an answer in linear time', (_, before, unit, after) => {
    const make = (bytes: number): string => filled(bytes, before, unit, after);
    expect(superlinear(make, (event) => nestedList(event))).toBeUndefined();
    expect(superlinear(make, (event) => members(event, ['metadata', 'z']))).toBeUndefined();
    expect(superlinear(make, (event) => elements(`[${event},${event}]`))).toBeUndefined();
  });
});

describe('a parameter', () => {
  const units: readonly Unit[] = [
    'a',
    '1',
    ' ',
    '-',
    ':',
    '+',
    '.',
    'é',
    '%',
    '(',
    '(a+)+',
    '2026-03-01T09:00:00Z',
    '0000-00-00 ',
    '[a-z]{20}',
    '\\',
    '\u0000',
    '😀',
  ];
  it.each(
    readDefinitions([BUILT_IN]).all.flatMap((definition) =>
      definition.parameters.map(({ name }) => [definition.name, name] as const),
    ),
  )('of %s, %s, is read in linear time', (endpoint, parameter) => {
    const definition = readDefinitions([BUILT_IN]).find(endpoint)!;
    for (const unit of units) {
      const make = (bytes: number): URLSearchParams =>
        new URLSearchParams({ project: 'p', interval: 'daily', [parameter]: filled(bytes, '', unit, '') });
      expect(
        superlinear(make, (query) => readParams(definition, query)),
        String(unit),
      ).toBeUndefined();
    }
  });
});
