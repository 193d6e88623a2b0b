import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { BUILT_IN, readDefinitions } from './definition-files.ts';
import type { Definition } from './definition.ts';
import { ignoredParameters, readParams } from './params.ts';

const definitions = readDefinitions([BUILT_IN]);
function get(name: string): Definition {
  const found = definitions.find(name);
  if (found === undefined) throw new Error(name);
  return found;
}
const read = (name: string, query: string): unknown => readParams(get(name), new URLSearchParams(query));

describe('readParams', () => {
  it.each<[string, string, unknown]>([
    ['functions.invocation-stats', 'project=p', { project: 'p', function_id: '', interval: '1day' }],
    [
      'functions.invocation-stats',
      'interval=1day&function_id=&project=p',
      { project: 'p', function_id: '', interval: '1day' },
    ],
    ['functions.invocation-stats', 'project=p&interval=nonsense', { project: 'p', function_id: '', interval: '1day' }],
    ['functions.invocation-stats', 'project=p&interval=5MIN', { project: 'p', function_id: '', interval: '1day' }],
    ['functions.invocation-stats', 'project=p&interval=', { project: 'p', function_id: '', interval: '1day' }],
    [
      'functions.invocation-stats',
      'project=p&interval=7day&function_id=f&sql=drop&x=1&x=2',
      { project: 'p', function_id: 'f', interval: '7day' },
    ],
    ['functions.invocation-stats', 'project=+p%20', { project: ' p ', function_id: '', interval: '1day' }],
    ['usage.api-counts', 'project=a.b&interval=1hr', { project: 'a.b', interval: 'minutely' }],
    ['usage.api-counts', 'project=a.b&interval=7day', { project: 'a.b', interval: 'daily' }],
    ['usage.api-counts', 'project=a.b&interval=daily', { project: 'a.b', interval: 'daily' }],
    [
      'logs.all',
      'project=p',
      { project: 'p', project_tier: 'FREE', iso_timestamp_start: null, iso_timestamp_end: null, limit: '100' },
    ],
    [
      'logs.all',
      'project=p&limit=007',
      { project: 'p', project_tier: 'FREE', iso_timestamp_start: null, iso_timestamp_end: null, limit: '7' },
    ],
    [
      'logs.all',
      'project=p&project_tier=gold&iso_timestamp_start=&iso_timestamp_end=2026-03-01',
      {
        project: 'p',
        project_tier: 'FREE',
        iso_timestamp_start: null,
        iso_timestamp_end: '2026-03-01 00:00:00.000000',
        limit: '100',
      },
    ],
    [
      'logs.all',
      'project=p&project_tier=PAYG&iso_timestamp_start=2026-03-01T09:00:00+02:00',
      {
        project: 'p',
        project_tier: 'PAYG',
        iso_timestamp_start: '2026-03-01 07:00:00.000000',
        iso_timestamp_end: null,
        limit: '100',
      },
    ],
  ])('%s?%s', (name, query, params) => {
    expect(read(name, query)).toEqual({ params });
  });

  it.each<[string, string, [string, string][]]>([
    ['functions.invocation-stats', '', [['project', 'is required']]],
    ['functions.invocation-stats', 'project=', [['project', 'must not be empty']]],
    ['functions.invocation-stats', 'project=a&project=a', [['project', 'is given more than once']]],
    ['functions.invocation-stats', 'project=a&interval=5min&interval=5min', [['interval', 'is given more than once']]],
    ['functions.invocation-stats', 'project=a%00', [['project', 'contains a NUL character']]],
    ['functions.invocation-stats', `project=${'a'.repeat(8193)}`, [['project', 'is longer than 8192 bytes']]],
    ['functions.invocation-stats', `project=${'é'.repeat(4097)}`, [['project', 'is longer than 8192 bytes']]],
    [
      'functions.invocation-stats',
      `project=a&interval=${'x'.repeat(8193)}`,
      [['interval', 'is longer than 8192 bytes']],
    ],
    ['usage.api-counts', `project=${'a'.repeat(1025)}&interval=daily`, [['project', 'is longer than 1024 bytes']]],
    ...['0', '101', '-1', '9223372036854775807'].map((limit): [string, string, [string, string][]] => [
      'logs.all',
      `project=p&limit=${limit}`,
      [['limit', 'must be from 1 to 100']],
    ]),
    ...['1.5', 'ten', '1e1', '18446744073709551616'].map((limit): [string, string, [string, string][]] => [
      'logs.all',
      `project=p&limit=${limit}`,
      [['limit', 'must be an integer of 64 bits']],
    ]),
    [
      'usage.api-counts',
      'project=.{1000}.{500}!&interval=daily',
      [['project', 'is too large a pattern: it has 1501 parts with repetitions multiplied out, more than 200']],
    ],
    ['usage.api-counts', 'project=(&interval=daily', [['project', 'is not a pattern in RE2 syntax']]],
    ['usage.api-counts', 'project=a', [['interval', 'is required']]],
    [
      'usage.api-counts',
      'interval=x',
      [
        ['project', 'is required'],
        ['interval', 'must be one of minutely, hourly, daily, 15min, 30min, 3hr, 1day, 3day, 1hr, 7day'],
      ],
    ],
    [
      'usage.api-counts',
      'project=a&interval=constructor',
      [['interval', 'must be one of minutely, hourly, daily, 15min, 30min, 3hr, 1day, 3day, 1hr, 7day']],
    ],
    [
      'logs.all',
      'iso_timestamp_start=yesterday&iso_timestamp_end=1772355600',
      [
        ['project', 'is required'],
        ['iso_timestamp_start', 'must be a timestamp such as 2026-03-01T09:00:00Z'],
        ['iso_timestamp_end', 'must be a timestamp such as 2026-03-01T09:00:00Z'],
      ],
    ],
  ])('%s?%s names every mistake', (name, query, mistakes) => {
    expect(read(name, query)).toEqual({ mistakes: mistakes.map(([parameter, message]) => ({ parameter, message })) });
  });

  it('is whole or names mistakes, never throws, and canonical values stay as they are', () => {
    const value = fc.oneof(
      fc.string({ unit: 'grapheme', maxLength: 40, size: 'max' }),
      fc.constantFrom('', '5min', '1day', 'FREE', 'PRO', '2026-03-01', 'daily', '1hr'),
    );
    const query = fc.array(
      fc.tuple(
        fc.constantFrom(
          'project',
          'interval',
          'function_id',
          'project_tier',
          'iso_timestamp_start',
          'iso_timestamp_end',
          'other',
          '__proto__',
        ),
        value,
      ),
      { maxLength: 8 },
    );
    fc.assert(
      fc.property(fc.constantFrom(...definitions.all), query, (definition, pairs) => {
        const result = readParams(definition, new URLSearchParams(pairs));
        if ('mistakes' in result) return result.mistakes.length > 0;
        const given = Object.entries(result.params).flatMap(([name, v]) =>
          v === null ? [] : [[name, v] as [string, string]],
        );
        expect(readParams(definition, new URLSearchParams(given))).toEqual(result);
        return Object.keys(result.params).join(',') === definition.parameters.map((p) => p.name).join(',');
      }),
    );
  });

  it('counts the bytes of a text and compares it with its pattern', () => {
    const definition = {
      ...get('logs.all'),
      parameters: [
        {
          name: 't',
          description: '',
          required: false,
          format: 'string' as const,
          pattern: '^a',
          maxLength: 5,
          aliases: {},
          examples: [],
        },
      ],
    };
    const t = (text: string): unknown => readParams(definition, new URLSearchParams({ t: text }));
    expect([t('abc'), t('abcde'), t('')]).toEqual([
      { params: { t: 'abc' } },
      { params: { t: 'abcde' } },
      { params: { t: '' } },
    ]);
    for (const [text, message] of [
      ['abcdef', 'is longer than 5 bytes'],
      ['bcd', 'must match ^a'],
    ])
      expect(t(text!)).toEqual({ mistakes: [{ parameter: 't', message }] });
  });

  it('knows 64-bit integers and numbers', () => {
    const n = (text: string, format: 'integer' | 'number' = 'integer'): unknown =>
      readParams(
        {
          ...get('logs.all'),
          parameters: [
            { name: 'n', description: '', required: false, format, maxLength: 100, aliases: {}, examples: [] },
          ],
        },
        new URLSearchParams({ n: text }),
      );
    expect(n('9223372036854775807')).toEqual({ params: { n: '9223372036854775807' } });
    expect(n('-9223372036854775808')).toEqual({ params: { n: '-9223372036854775808' } });
    expect(n('-007')).toEqual({ params: { n: '-7' } });
    expect(n('')).toEqual({ params: { n: null } });
    for (const text of ['9223372036854775808', '-9223372036854775809', '1.0', '1e3', ' 1', 'x'])
      expect(n(text)).toEqual({ mistakes: [{ parameter: 'n', message: 'must be an integer of 64 bits' }] });
    expect(n('-1.50e3', 'number')).toEqual({ params: { n: '-1500' } });
    for (const text of ['1e999', '-1e999', 'NaN', 'Infinity', '.5'])
      expect(n(text, 'number')).toEqual({ mistakes: [{ parameter: 'n', message: 'must be a number' }] });
  });
});

describe('ignoredParameters', () => {
  const ignored = (query: string): string => ignoredParameters(get('logs.all'), new URLSearchParams(query));

  it('names undeclared parameters once, percent-encoded', () => {
    expect(ignored('project=p&limit=1&api_key=k')).toBe('');
    expect(ignored('project=p&projekt=1&projekt=2&%0A=3')).toBe('projekt, %0A');
  });

  it('does not let a name that is too long hide the others', () => {
    expect(ignored(`${'x'.repeat(2000)}=1&projekt=p`)).toBe('projekt');
    const many = ignored(Array.from({ length: 500 }, (_, i) => `parameter${i}=`).join('&'));
    expect(many.split(', ').slice(0, 2)).toEqual(['parameter0', 'parameter1']);
    expect(many.length).toBeLessThanOrEqual(1000);
  });
});
