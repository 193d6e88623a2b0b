import { readdirSync, readFileSync } from 'node:fs';
import avro from 'avsc';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { fingerprintOf } from './fingerprint.ts';
import { canonicalForm, withFullNames } from './names.ts';
import { isNamed } from './resolution.ts';
import { parseSchema } from './schemas.ts';

// Java and Confluent's registry accept names that avsc refuses. Java validates only what is behind the last dot.

const parsed = (schema: unknown): ReturnType<typeof parseSchema> => parseSchema(JSON.stringify(schema));
const project = { name: 'project', type: 'string' };

describe.each(['com.my-company.logs', 'com.acme.Outer$', '2024.logs', 'a..b', 'a.ü.b', '_x2d_._x', 'sluice'])(
  'the namespace %s',
  (namespace) => {
    const canonical = `{"name":"${namespace}.edge_logs","type":"record","fields":[{"name":"project","type":"string"}]}`;

    test.each([
      ['as an attribute', { type: 'record', name: 'edge_logs', namespace, fields: [project] }],
      ['in the name', { type: 'record', name: `${namespace}.edge_logs`, fields: [project] }],
    ])('%s: the record is named as its source, and its fingerprint is that of its own name', (_, schema) => {
      const { type, name, fingerprint } = parsed(schema);
      expect(isNamed(parsed({ ...schema, namespace: 'sluice', name: 'edge_logs' }).type, type.name)).toBe(true);
      expect(isNamed(parsed({ ...schema, namespace: 'sluice', name: 'logs' }).type, type.name)).toBe(false);
      expect(name).toBe(`${namespace}.edge_logs`);
      expect(fingerprint).toBe(fingerprintOf(canonical));
    });

    test('of a nested type and of references to it', () => {
      const nested = { type: 'enum', name: 'E', namespace, symbols: ['A'] };
      const fields = [
        { name: 'a', type: nested },
        { name: 'b', type: ['null', `${namespace}.E`] },
      ];
      const { type, fingerprint } = parsed({ type: 'record', name: 'edge_logs', fields });
      expect(type.toBuffer({ a: 'A', b: null })).toEqual(Buffer.of(0, 0));
      expect(fingerprint).toBe(
        fingerprintOf(
          `{"name":"edge_logs","type":"record","fields":[{"name":"a","type":{"name":"${namespace}.E","type":"enum","symbols":["A"]}},{"name":"b","type":["null","${namespace}.E"]}]}`,
        ),
      );
    });

    test('of an alias', () => {
      const { type } = parsed({ type: 'record', name: 'n', namespace, aliases: ['b', 'x-y.a', '.c'], fields: [] });
      for (const alias of ['a', 'b', 'c']) expect(isNamed(type, alias)).toBe(true);
      expect(isNamed(type, 'd')).toBe(false);
    });
  },
);

test('namespaces that differ stay different', () => {
  const namespaces = ['a-b', 'a_x2d_b', 'a_b', 'a$b', 'a_x5f_x2d_b', 'a.b', 'a..b', 'a._x_.b', '-a', '_-a'];
  const union = namespaces.map((namespace) => ({ type: 'fixed', name: 'f', namespace, size: 1 }));
  const { type } = parsed(union);
  const names = (type as avro.types.WrappedUnionType).types.map(({ name }) => name);
  expect(new Set(names).size).toBe(namespaces.length);
});

const empty = (name: string, more: object = {}): object => ({ type: 'record', name, fields: [], ...more });
const holds = (name: string, ...types: readonly unknown[]): object =>
  empty(name, { fields: types.map((type, i) => ({ name: `f${i}`, type })) });

describe('a name', () => {
  test.each<[string, object, string]>([
    ['that is bare is of the namespace around it', holds('a.R', empty('B'), 'B'), '"a.B"'],
    ['that is bare is of no namespace if the one around it lacks it', holds('R', empty('B'), holds('a.S', 'B')), '"B"'],
    ['in the namespace around it comes first', holds('R', empty('B'), holds('a.S', empty('B'), 'B')), '"a.B"'],
    ['with a dot before it is of no namespace', holds('a.R', empty('.B'), empty('B'), '.B'), '"B"'],
    ['may be that of the record around it', holds('a.R', { type: 'array', items: 'R' }), '"a.R"'],
    [
      'with dots makes the namespace of what is within, whatever the attribute says',
      { ...holds('a.R', empty('B'), 'a.B'), namespace: 'x' },
      '"a.B"',
    ],
    ['in an object is a reference too', holds('a.R', empty('B'), { type: 'B' }), '"a.B"'],
    [
      'has the namespace around it if its own is null',
      { ...holds('a.R', empty('B', { namespace: null }), 'B') },
      '"a.B"',
    ],
    [
      'of the empty namespace has none, as what is within it',
      holds('a.R', { ...holds('S', empty('B'), 'B'), namespace: '' }),
      '"B"',
    ],
  ])('%s', (_, schema, reference) => {
    expect(() => parsed(schema)).not.toThrow();
    const canonical = canonicalForm(withFullNames(schema));
    expect(canonical.slice(canonical.lastIndexOf('"type":') + '"type":'.length)).toMatch(reference);
  });

  test.each<[string, unknown, string]>([
    ['unknown', holds('a.R', 'B'), 'undefined type name: a.B'],
    ['defined later', holds('a.R', 'B', empty('B')), 'undefined type name: a.B'],
    ['defined twice', holds('a.R', empty('B'), empty('a.B')), 'duplicate type name: a.B'],
    ['with other characters behind the last dot', empty('a.b-c'), 'invalid name: "a.b-c"'],
    ['of a primitive type', empty('a.string'), 'cannot rename primitive type: "string"'],
  ])('%s is refused', (_, schema, message) => {
    expect(() => parsed(schema)).toThrow(message);
  });

  test.each<[unknown, string]>([
    [null, 'null is no type'],
    [{ type: 'array', items: 7 }, '7 is no type'],
    [{ type: 'record', name: 'R' }, 'a record has no fields'],
    ['recrod', 'undefined type name: recrod'],
  ])('%j is no schema', (schema, message) => {
    expect(() => parsed(schema)).toThrow(message);
  });
});

test('attributes that say nothing of a datum are not in the canonical form', () => {
  const of = { type: 'array', items: { type: 'int', logicalType: 'date' }, name: 'x', size: 1 };
  const field = { name: 'aliases', type: of, size: 20, symbols: ['x'], default: [], aliases: ['y'], order: 'ignore' };
  const schema = { doc: 'd', size: 3, fields: [field], aliases: ['z'], name: 'r', type: 'record', 'my-own': {} };
  expect(canonicalForm(withFullNames(schema))).toBe(
    '{"name":"r","type":"record","fields":[{"name":"aliases","type":{"type":"array","items":"int"}}]}',
  );
  expect(parsed(schema).name).toBe('r');
});

describe('the canonical form is that of avsc', () => {
  /** As it was computed before: by avsc, which knows only some names. */
  function fingerprintByAvsc(text: string): bigint {
    const json = JSON.parse(text, (key, value: unknown) => (key === 'default' ? undefined : value)) as avro.Schema;
    return fingerprintOf(JSON.stringify(avro.Type.forSchema(json, { wrapUnions: true }).schema()));
  }

  const folder = new URL('../../../schemas/', import.meta.url);
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.avsc'));
  test.each(files)('of %s', (file) => {
    const text = readFileSync(new URL(file, folder), 'utf8');
    expect(parseSchema(text).fingerprint).toBe(fingerprintByAvsc(text));
  });

  interface Shape {
    readonly kind: string;
    readonly parts: readonly Shape[];
    readonly namespace: string | undefined;
    readonly isDotted: boolean;
    readonly pick: number;
  }
  const { shape } = fc.letrec<{ shape: Shape }>((tie) => ({
    shape: fc.record({
      kind: fc.constantFrom('primitive', 'object', 'reference', 'enum', 'fixed', 'array', 'map', 'union', 'record'),
      parts: fc.oneof({ maxDepth: 4 }, fc.constant([]), fc.array(tie('shape'), { minLength: 1, maxLength: 4 })),
      namespace: fc.constantFrom(undefined, undefined, '', 'a', 'a.b', '_x.c'),
      isDotted: fc.boolean(),
      pick: fc.nat(),
    }),
  }));
  const primitives = ['null', 'boolean', 'int', 'long', 'float', 'double', 'bytes', 'string'];

  /** defined: the namespace and the name of what stands before */
  function schemaOf(of: Shape, around: string, defined: [string, string][], isBranch = false): unknown {
    const { kind, parts, namespace, isDotted, pick } = of;
    const primitive = primitives[pick % primitives.length]!;
    const part = (inside: string): unknown => (parts[0] ? schemaOf(parts[0], inside, defined) : primitive);
    const own = namespace ?? around;
    const name = `N${defined.length}`;
    const named = {
      doc: 'a "doc"',
      aliases: ['Other'],
      ...(isDotted && own !== '' ? { name: `${own}.${name}` } : { name, namespace }),
    };
    switch (kind) {
      case 'reference': {
        const [space, known] = defined[pick % Math.max(defined.length, 1)] ?? ['', primitive];
        if (space === '') return known === primitive || around === '' ? known : `.${known}`;
        return space === around && isDotted ? known : `${space}.${known}`;
      }
      case 'object':
        return { type: primitive, logicalType: 'x' };
      case 'enum':
        defined.push([own, name]);
        return { type: 'enum', symbols: ['A', 'B'], default: 'A', ...named };
      case 'fixed':
        defined.push([own, name]);
        return { size: (pick % 20) + 1, type: 'fixed', ...named };
      case 'array':
        return { type: 'array', items: part(around), default: [] };
      case 'map':
        return { values: part(around), type: 'map', title: 'x' };
      case 'record':
        defined.push([own, name]);
        return {
          type: 'record',
          ...named,
          fields: parts.map((field, i) => ({
            doc: 'd',
            type: schemaOf(field, own, defined),
            name: `f${i}`,
            order: 'ignore',
          })),
        };
      case 'union':
        return isBranch ? primitive : [primitive, { type: 'array', items: part(around) }];
      default:
        return primitive;
    }
  }

  test('of any schema', () => {
    fc.assert(
      fc.property(shape, (of) => {
        const text = JSON.stringify(schemaOf({ ...of, kind: 'record' }, '', []));
        expect(parseSchema(text).fingerprint).toBe(fingerprintByAvsc(text));
      }),
      { numRuns: 500 },
    );
  });
});

test.each([
  ['references', 'a'.repeat(20_000), Array.from({ length: 2_000 }, (_, i) => ({ name: `f${i}`, type: 'E' })), []],
  ['aliases', 'a.'.repeat(10_000) + 'a', [], Array.from({ length: 2_000 }, () => 'a')],
])('a long namespace with many %s is refused before it fills the memory', (_, namespace, fields, aliases) => {
  const first = { name: 'e', type: { type: 'enum', name: 'E', symbols: ['A'] } };
  expect(() => parsed({ type: 'record', name: 'edge_logs', namespace, aliases, fields: [first, ...fields] })).toThrow(
    'its names in full have more than 1048576 characters',
  );
});

test.each([
  [{ type: 'novel' }, 'undefined type name: com.my-company.novel'],
  [{ type: 'constructor' }, 'undefined type name: com.my-company.constructor'],
  [{ type: { type: 'fixed', name: 5, size: 1 } }, 'invalid name: 5'],
  [{ type: { type: 'fixed', name: 'F', size: 1, aliases: 'G' } }, 'aliases are no list'],
])('what is wrong is said in the names of the schema: %j', (field, message) => {
  const schema = { type: 'record', name: 'edge_logs', namespace: 'com.my-company', fields: [{ name: 'f', ...field }] };
  expect(() => parsed(schema)).toThrow(message);
});

test('an error has the fingerprint of a record, as in Java', () => {
  const of = (type: string): object => ({ type, name: 'a.e', fields: [] });
  expect(parsed(of('error')).fingerprint).toBe(parsed(of('record')).fingerprint);
});

test('aliases that are null are none', () => {
  expect(parsed({ type: 'record', name: 'edge_logs', aliases: null, fields: [project] }).name).toBe('edge_logs');
});
