import { describe, expect, it } from 'vitest';
import { eachElement, members, nestedList } from '../../../common/json-text.ts';
import { BUILT_IN, readDefinitions } from '../../../services/query/definition/definition-files.ts';
import { isModified, preferredEncoding, preferredFormat } from '../../../services/query/http/negotiate.ts';
import { ignoredParameters, readParams } from '../../../services/query/definition/params.ts';
import { convertBody, renderBody } from '../../../services/query/render/render.ts';
import { filled, superlinear } from '../../harness/doubling.ts';

// Guarantee: no stored event, no parameter and no header costs more than in proportion to its bytes. (HTTP takes less
// of a parameter or a header than is tried here.)

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
  it.each(stored)('of %s is made into an answer in linear time', async (_, before, unit, after) => {
    const make = (bytes: number): string => filled(bytes, before, unit, after);
    expect(await superlinear(make, (event) => nestedList(event))).toBeUndefined();
    expect(await superlinear(make, (event) => members(event, ['metadata', 'z']))).toBeUndefined();
    expect(await superlinear(make, (event) => [...eachElement(`[${event},${event}]`)])).toBeUndefined();
    const definition = readDefinitions([BUILT_IN]).find('logs.all')!;
    const result = (bytes: number): Buffer =>
      Buffer.from(
        `{"meta":[{"name":"id","type":"String"},{"name":"timestamp","type":"DateTime64(6)"},{"name":"message","type":"String"}],"data":[["x","2026-03-01 09:00:00.000000",${JSON.stringify(`{"metadata":${make(bytes)}}`)}]]}`,
      );
    expect(await superlinear(result, (bytes) => renderBody(definition, bytes))).toBeUndefined();
  });

  it.each(stored.filter(([name]) => ['letters', 'escaped quotes', 'names'].includes(name)))(
    'of %s is a line or a cell in linear time',
    async (_, before, unit, after) => {
      const cell = (bytes: number): Buffer =>
        Buffer.from(`{"result":[{"a":${JSON.stringify(filled(bytes, before, unit, after))}}]}`);
      const columns = [{ name: 'a', from: 'a', description: '', nullable: true, render: 'string' as const }];
      for (const format of ['csv', 'ndjson'] as const)
        expect(await superlinear(cell, (body) => convertBody(body, format, columns)), format).toBeUndefined();
    },
  );
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
  )('of %s, %s, is read in linear time', async (endpoint, parameter) => {
    const definition = readDefinitions([BUILT_IN]).find(endpoint)!;
    for (const unit of units) {
      const make = (bytes: number): URLSearchParams =>
        new URLSearchParams({ project: 'p', interval: 'daily', [parameter]: filled(bytes, '', unit, '') });
      expect(await superlinear(make, (query) => readParams(definition, query)), String(unit)).toBeUndefined();
    }
  });
});

describe('a call', () => {
  const definition = readDefinitions([BUILT_IN]).find('functions.invocation-stats')!;
  it.each<[string, (text: string) => unknown, readonly Unit[]]>([
    [
      'names of parameters',
      (text) => ignoredParameters(definition, new URLSearchParams(text)),
      ['a', '&', '%', (i) => `k${i}=&`],
    ],
    ['Accept', (text) => preferredFormat(text, definition), ['a', ' ', ';q=1', 'text/csv;q=0.1 ,']],
    ['Accept-Encoding', (text) => preferredEncoding(text), ['a', ' ', ';q=1', 'x-gzip;q=0.1 ,']],
    ['If-None-Match', (text) => isModified(text, 'W/"x"'), ['a', ' ', 'W/"abcdefgh", ']],
  ])('has its %s read in linear time', async (_, work, units) => {
    for (const unit of units)
      expect(await superlinear((bytes) => filled(bytes, '', unit, ''), work), String(unit)).toBeUndefined();
  });
});
