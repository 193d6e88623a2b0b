import { readdirSync, readFileSync } from 'node:fs';
import avro from 'avsc';
import fc from 'fast-check';
import { describe, expect, test, vi } from 'vitest';
import { createScanner, MAX_DEPTH, TOO_DEEP, VALID } from '../../../common/evaluate/scanner.ts';
import { sources } from '../../../common/sources.ts';
import { parseSchema } from './schemas.ts';
import { MalformedAvro, MAX_EMPTY_ITEMS, TextTooLarge } from './datum-text.ts';
import { compile } from './transcode.ts';

const MAX_BYTES = 8 * 1024 * 1024;

const schemaFolder = new URL('../../../schemas/', import.meta.url);
const read = (path: string): string => readFileSync(new URL(path, schemaFolder), 'utf8');

/** Of the sources, and of the schemas of this file: at every depth, beside and within each other. */
const PATHS = [
  'id',
  'timestamp',
  'project',
  'metadata.level',
  'metadata.project',
  'metadata.parsed.error_severity',
  'metadata.request.url',
  'metadata.response.status_code',
  'field_0',
  'field_1.field_0.field_0',
  'field_1.field_1',
  'field_2.field_0',
  'field_3',
  'a',
  'b.a',
  'k.a',
  'm',
  'x.y',
];
const [noting, scanning] = [createScanner(PATHS), createScanner(PATHS)];

/** The JSON text of the datum; of an object, what is noted of it on the way is what a scan of the text finds. */
function textOf(schema: unknown, datum: Buffer, reader?: unknown, maxBytes = MAX_BYTES): string {
  const type = (s: unknown): avro.Type => parseSchema(JSON.stringify(s)).type;
  const text = compile(type(schema), reader === undefined ? undefined : type(reader), noting)(datum, 0, maxBytes);
  const noted = noting.found.join();
  if (text[0] === 0x7b) {
    const verdict = scanning.scan(text, 0, text.length);
    if (verdict !== TOO_DEEP) expect([verdict, noted]).toEqual([VALID, scanning.found.join()]);
  }
  return text.toString('utf8');
}

// --- what others say of the same bytes ---

describe.each(sources.map((s) => s.name))('%s', (source) => {
  const schema = JSON.parse(read(`${source}.avsc`)) as avro.Schema;
  const cases = readdirSync(new URL(`examples/${source}/`, schemaFolder));

  test.each(cases)('%s: the text is what avsc decodes, without its nulls', (file) => {
    const type = avro.Type.forSchema(schema);
    const datum = type.toBuffer(JSON.parse(read(`examples/${source}/${file}`)));
    const decoded = JSON.parse(JSON.stringify(type.fromBuffer(datum))) as unknown;
    expect(textOf(schema, datum)).toBe(JSON.stringify(withoutNulls(decoded)));
  });
});

function withoutNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNulls);
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, v]) => v !== null)
      .map(([k, v]) => [k, withoutNulls(v)]),
  );
}

// --- any schema, any value ---

/** longs as bigints, so that avsc keeps their digits */
const exactLong = avro.types.LongType.__with({
  fromBuffer: (buffer: Buffer) => buffer.readBigInt64LE(),
  toBuffer: (n: bigint) => {
    const buffer = Buffer.alloc(8);
    buffer.writeBigInt64LE(n);
    return buffer;
  },
  fromJSON: BigInt,
  toJSON: Number,
  isValid: (n: unknown) => typeof n === 'bigint',
  compare: (a: bigint, b: bigint) => (a === b ? 0 : a < b ? -1 : 1),
});

type Shape =
  | { kind: 'null' | 'boolean' | 'int' | 'long' | 'float' | 'double' | 'string' | 'bytes' }
  | { kind: 'fixed'; size: number }
  | { kind: 'enum'; symbols: number }
  | { kind: 'array' | 'map'; items: Shape }
  | { kind: 'record'; fields: Shape[] }
  | { kind: 'union'; branches: Shape[] };

const shapes = fc.letrec<{ shape: Shape; plain: Shape; deep: Shape }>((tie) => ({
  shape: fc.oneof({ depthSize: 'small', withCrossShrink: true }, tie('plain'), tie('deep')),
  plain: fc.oneof(
    fc
      .constantFrom(...(['null', 'boolean', 'int', 'long', 'float', 'double', 'string', 'bytes'] as const))
      .map((kind) => ({ kind })),
    fc.record({ kind: fc.constant('fixed' as const), size: fc.integer({ min: 0, max: 5 }) }),
    fc.record({ kind: fc.constant('enum' as const), symbols: fc.integer({ min: 1, max: 70 }) }),
  ),
  deep: fc.oneof(
    fc.record({ kind: fc.constantFrom('array' as const, 'map' as const), items: tie('shape') }),
    fc.record({ kind: fc.constant('record' as const), fields: fc.array(tie('shape'), { maxLength: 6 }) }),
    fc.record({
      kind: fc.constant('union' as const),
      branches: fc.uniqueArray(
        tie('shape').filter((s) => s.kind !== 'union'),
        { minLength: 1, maxLength: 4, selector: (s) => s.kind },
      ),
    }),
  ),
})).shape;

/** A schema with names of its own for every named type. */
function schemaOf(shape: Shape, names: { next: number }): unknown {
  switch (shape.kind) {
    case 'fixed':
      return { type: 'fixed', name: `n${names.next++}`, size: shape.size };
    case 'enum':
      return {
        type: 'enum',
        name: `n${names.next++}`,
        symbols: Array.from({ length: shape.symbols }, (_, i) => `S${i}`),
      };
    case 'array':
      return { type: 'array', items: schemaOf(shape.items, names) };
    case 'map':
      return { type: 'map', values: schemaOf(shape.items, names) };
    case 'record':
      return {
        type: 'record',
        name: `n${names.next++}`,
        namespace: 'a.b',
        fields: shape.fields.map((field, i) => ({ name: `field_${i}`, type: schemaOf(field, names) })),
      };
    case 'union':
      return shape.branches.map((branch) => schemaOf(branch, names));
    case 'null':
    case 'boolean':
    case 'int':
    case 'long':
    case 'float':
    case 'double':
    case 'string':
    case 'bytes':
      return shape.kind;
  }
}

/** A value as avsc takes it, with the text that it must become. */
type Sample = { value: unknown; text: string };

function samples(type: avro.Type): fc.Arbitrary<Sample> {
  const plain = <T>(arbitrary: fc.Arbitrary<T>, text: (value: T) => string): fc.Arbitrary<Sample> =>
    arbitrary.map((value) => ({ value, text: text(value) }));
  const latin1 = (bytes: Uint8Array): string => JSON.stringify(Buffer.from(bytes).toString('latin1'));
  const number = (n: number): string => (Number.isFinite(n) ? (Object.is(n, -0) ? '-0' : JSON.stringify(n)) : 'null');
  const buffer = (arbitrary: fc.Arbitrary<Uint8Array>): fc.Arbitrary<Buffer> =>
    arbitrary.map((bytes) => Buffer.from(bytes));
  const inherited = type as unknown as {
    itemsType: avro.Type;
    valuesType: avro.Type;
    fields: avro.types.Field[];
    types: avro.Type[];
    size: number;
    symbols: string[];
  };
  switch (type.typeName) {
    case 'null':
      return fc.constant({ value: null, text: 'null' });
    case 'boolean':
      return plain(fc.boolean(), String);
    case 'int':
      return plain(fc.oneof(fc.integer(), fc.integer({ min: -70, max: 70 })), String);
    case 'abstract:long':
      return plain(
        fc.oneof(
          fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
          fc.bigInt({ min: -(2n ** 54n), max: 2n ** 54n }),
          fc.bigInt({ min: -200n, max: 200n }),
          fc.constantFrom(
            2n ** 52n,
            2n ** 52n - 1n,
            -(2n ** 52n),
            -(2n ** 52n) - 1n,
            2n ** 53n + 1n,
            -(2n ** 53n) - 1n,
          ),
        ),
        String,
      );
    case 'float':
      return plain(fc.float(), number);
    case 'double':
      return plain(fc.double(), number);
    case 'string':
      return plain(texts, (s) => JSON.stringify(s));
    case 'bytes':
      return plain(buffer(fc.uint8Array({ maxLength: 20, size: 'max' })), latin1);
    case 'fixed':
      return plain(buffer(fc.uint8Array({ minLength: inherited.size, maxLength: inherited.size })), latin1);
    case 'enum':
      return plain(fc.constantFrom(...inherited.symbols), (s) => JSON.stringify(s));
    case 'array':
      return fc
        .array(samples(inherited.itemsType), { maxLength: 4 })
        .map((items) => ({ value: items.map((i) => i.value), text: `[${items.map((i) => i.text).join(',')}]` }));
    case 'map':
      return fc
        .uniqueArray(
          fc.tuple(
            texts.map((key) => `k${key}`),
            samples(inherited.valuesType),
          ),
          { maxLength: 4, selector: ([key]) => key },
        )
        .map((entries) => ({
          value: Object.fromEntries(entries.map(([key, { value }]) => [key, value])),
          text: `{${entries.map(([key, { text }]) => `${JSON.stringify(key)}:${text}`).join(',')}}`,
        }));
    case 'record':
      return fc.tuple(...inherited.fields.map((field) => samples(field.type))).map((fields) => ({
        value: Object.fromEntries(inherited.fields.map((field, i) => [field.name, fields[i]!.value])),
        text: `{${inherited.fields.flatMap((field, i) => (fields[i]!.value === null ? [] : [`${JSON.stringify(field.name)}:${fields[i]!.text}`])).join(',')}}`,
      }));
    case 'union:wrapped':
      return fc.oneof(
        ...inherited.types.map((branch) =>
          samples(branch).map(({ value, text }) => ({
            value: value === null ? null : { [branch.branchName!]: value },
            text,
          })),
        ),
      );
    default:
      throw new Error(type.typeName);
  }
}

const texts = fc.oneof(
  fc.string({ maxLength: 12, size: 'max' }),
  fc.string({ unit: 'binary', maxLength: 12, size: 'max' }),
  fc.string({
    unit: fc.constantFrom(
      '"',
      '\\',
      '\n',
      '\u0000',
      '\u001f',
      '\u007f',
      '\u0080',
      'é',
      '\u2028',
      '€',
      '😀',
      'a',
      'b',
      ' ',
    ),
    maxLength: 30,
    size: 'max',
  }),
);

const datums = shapes.chain((shape) => {
  const schema = schemaOf(shape, { next: 0 });
  const type = avro.Type.forSchema(schema as avro.Schema, { wrapUnions: true, registry: { long: exactLong } });
  return fc.record({
    schema: fc.constant(schema),
    sample: samples(type),
    encode: fc.constant((value: unknown) => type.toBuffer(value)),
  });
});

test('any value of any schema, written by avsc, becomes its text', () => {
  fc.assert(
    fc.property(datums, ({ schema, sample, encode }) => {
      const text = textOf(schema, encode(sample.value));
      expect(text).toBe(sample.text);
      JSON.parse(text);
    }),
    { numRuns: 1500 },
  );
}, 60_000);

test('a datum that is cut off, or followed by more, is malformed', () => {
  fc.assert(
    fc.property(datums, fc.nat(), ({ schema, sample, encode }, at) => {
      const datum = encode(sample.value);
      expect(() => textOf(schema, Buffer.concat([datum, Buffer.of(0)]))).toThrow(MalformedAvro);
      if (datum.length > 0) expect(() => textOf(schema, datum.subarray(0, at % datum.length))).toThrow(MalformedAvro);
    }),
    { numRuns: 500 },
  );
});

test('changed bytes are malformed or become valid JSON, and nothing else ever happens', () => {
  const changes = fc.array(fc.tuple(fc.nat(), fc.integer({ min: 0, max: 255 })), { minLength: 1, maxLength: 4 });
  fc.assert(
    fc.property(datums, changes, ({ schema, sample, encode }, bytes) => {
      const datum = encode(sample.value);
      for (const [place, byte] of bytes) if (datum.length > 0) datum[place % datum.length] = byte;
      let text: string;
      try {
        text = textOf(schema, datum);
      } catch (error) {
        expect(error).toBeInstanceOf(MalformedAvro);
        return;
      }
      JSON.parse(text);
      expect(Buffer.from(text).toString('utf8')).toBe(text);
    }),
    { numRuns: 1500 },
  );
}, 60_000);

describe('what is noted on the way is what a scan of the text finds', () => {
  const record = (name: string, ...fields: readonly (readonly [string, unknown])[]): object => ({
    type: 'record',
    name,
    fields: fields.map(([field, type]) => ({ name: field, type })),
  });
  const request = record('Request', [
    'url',
    [
      'null',
      'string',
      'bytes',
      'double',
      { type: 'enum', name: 'E', symbols: ['A', 'B'] },
      { type: 'fixed', name: 'F', size: 2 },
    ],
  ]);
  const cases: readonly (readonly [string, object, unknown])[] = [
    [
      'texts and numbers',
      record('r', ['id', 'long'], ['project', 'string'], ['timestamp', 'double']),
      { id: 5, project: 'é', timestamp: 1.5 },
    ],
    [
      'escapes',
      record('r', ['id', 'string'], ['project', 'bytes']),
      { id: 'a"\n', project: Buffer.from([0xff, 0x0a]) },
    ],
    ['numbers that are not finite', record('r', ['timestamp', 'double']), { timestamp: Infinity }],
    [
      'booleans and nulls',
      record('r', ['id', 'boolean'], ['project', 'null'], ['timestamp', ['null', 'long']]),
      { id: true, project: null, timestamp: null },
    ],
    ...[{ string: 'u' }, { bytes: Buffer.from('u\n') }, { double: 1 }, { E: 'B' }, { F: Buffer.from('ab') }, null].map(
      (url) =>
        [
          'a union',
          record('r', ['metadata', record('M', ['request', request])]),
          { metadata: { request: { url } } },
        ] as const,
    ),
    ...[[], [{ url: { string: 'first' } }, { url: { string: 'second' } }]].map(
      (requests) =>
        [
          'a list of records',
          record('r', [
            'metadata',
            { type: 'array', items: record('M', ['request', { type: 'array', items: request }]) },
          ]),
          { metadata: [{ request: requests }, { request: [] }] },
        ] as const,
    ),
    [
      'a list of strings',
      record('r', ['metadata', { type: 'array', items: 'string' }], ['id', { type: 'array', items: 'string' }]),
      { metadata: ['x'], id: ['y'] },
    ],
    [
      'a list of lists',
      record('r', ['metadata', { type: 'array', items: { type: 'array', items: record('M', ['level', 'string']) } }]),
      { metadata: [[{ level: 'x' }]] },
    ],
    [
      'a list that begins with null',
      record('r', ['metadata', { type: 'array', items: ['null', record('M', ['level', 'string'])] }]),
      { metadata: [null, { M: { level: 'x' } }] },
    ],
    [
      'a list that begins with an object',
      record('r', ['metadata', { type: 'array', items: ['null', record('M', ['level', 'string'])] }]),
      { metadata: [{ M: { level: 'x' } }, null, { M: { level: 'y' } }] },
    ],
    [
      'a map',
      record('r', ['metadata', { type: 'map', values: ['string', { type: 'map', values: 'string' }] }]),
      {
        metadata: {
          level: { string: 'x' },
          other: { string: 'y' },
          request: { map: { url: 'u', urls: 'v' } },
          project: { string: 'p' },
        },
      },
    ],
    [
      'a map with a key of escapes',
      record('r', ['metadata', { type: 'map', values: 'string' }]),
      { metadata: { 'lev\nel': 'x', é: 'y', level: 'z' } },
    ],
  ];

  test.each(cases)('%s', (_, schema, value) => {
    const type = parseSchema(JSON.stringify(schema)).type;
    expect(JSON.parse(textOf(schema, type.toBuffer(value)))).toBeTypeOf('object');
  });

  test('of duplicate keys of a map the first counts', () => {
    const entry = (key: string, text: string): Buffer =>
      Buffer.concat([Buffer.of(key.length * 2), Buffer.from(key), Buffer.of(text.length * 2), Buffer.from(text)]);
    const datum = Buffer.concat([
      Buffer.of(4),
      entry('level', 'one'),
      entry('level', 'two'),
      Buffer.of(2),
      entry('level', 'three'),
      Buffer.of(0),
    ]);
    expect(textOf(record('r', ['metadata', { type: 'map', values: 'string' }]), datum)).toBe(
      '{"metadata":{"level":"one","level":"two","level":"three"}}',
    );
  });

  test('of two fields that are one of the reader by its aliases the first that is not null counts', () => {
    const writer = record('r', ['a', ['null', 'string']], ['b', ['null', 'string']]);
    const reader = {
      type: 'record',
      name: 'r',
      fields: [{ name: 'project', type: ['null', 'string'], aliases: ['a', 'b'], default: null }],
    };
    const texts = [
      [2, 2, 0x78, 2, 2, 0x79],
      [0, 2, 2, 0x79],
      [0, 0],
    ].map((datum) => textOf(writer, Buffer.from(datum), reader));
    expect(texts).toEqual(['{"project":"x","project":"y"}', '{"project":"y"}', '{}']);
  });
});

test('a datum anywhere in a message, beside others in the same memory, has the same text', () => {
  const transcode = compile(
    parseSchema('{"type":"record","name":"r","fields":[{"name":"a","type":"string"},{"name":"b","type":"double"}]}')
      .type,
    undefined,
    noting,
  );
  const datum = Buffer.concat([Buffer.of(6), Buffer.from('xyz'), Buffer.from([0, 0, 0, 0, 0, 0, 0xf8, 0x3f])]);
  const texts = Array.from({ length: 9 }, (_, before) =>
    transcode(Buffer.concat([Buffer.alloc(before, 0x41), datum]), before, 100),
  );
  expect(texts.map((text) => text.toString())).toEqual(texts.map(() => '{"a":"xyz","b":1.5}'));
});

test.each(['\u0001', '"', 'a"', 'abc\n', 'é', '€\\', '😀', 'plain text '])(
  'a text that outgrows its memory, of %j',
  (part) => {
    const list = avro.Type.forSchema({ type: 'array', items: 'string' });
    for (const items of [[part.repeat(400_000)], Array.from({ length: 3_000 }, (_, i) => part.repeat(i % 150))]) {
      expect(textOf({ type: 'array', items: 'string' }, list.toBuffer(items)) === JSON.stringify(items)).toBe(true);
    }
    const bytes = Buffer.from(part.repeat(300_000));
    expect(
      textOf('bytes', avro.Type.forSchema('bytes').toBuffer(bytes)) === JSON.stringify(bytes.toString('latin1')),
    ).toBe(true);
  },
);

// --- how the parts are written ---

describe('what a value is as text', () => {
  const double = (n: number): Buffer => {
    const buffer = Buffer.alloc(8);
    buffer.writeDoubleLE(n);
    return buffer;
  };
  const float = (n: number): Buffer => {
    const buffer = Buffer.alloc(4);
    buffer.writeFloatLE(n);
    return buffer;
  };
  const string = (text: string): Buffer => avro.Type.forSchema('string').toBuffer(text);

  test.each<[unknown, Buffer, string]>([
    ['long', Buffer.from('feffffffffffffffff01', 'hex'), '9223372036854775807'],
    ['long', Buffer.from('ffffffffffffffffff01', 'hex'), '-9223372036854775808'],
    ['long', Buffer.from('8000', 'hex'), '0'],
    ['double', double(0.1), '0.1'],
    ['double', double(5e-324), '5e-324'],
    ['double', double(1e21), '1e+21'],
    ['double', double(-0), '-0'],
    ['double', double(Number.NaN), 'null'],
    ['double', double(Number.POSITIVE_INFINITY), 'null'],
    ['float', float(Number.NEGATIVE_INFINITY), 'null'],
    ['float', float(0.5), '0.5'],
    ['float', float(0.1), '0.10000000149011612'],
    ['string', string('\u0000"\\/\n\u007f€😀'), '"\\u0000\\"\\\\/\\n\u007f€😀"'],
    ['bytes', Buffer.from([8, 0x00, 0x41, 0x80, 0xff]), '"\\u0000A\u0080\u00ff"'],
    [{ type: 'fixed', name: 'f', size: 2 }, Buffer.from([0x22, 0xe9]), '"\\"é"'],
    [{ type: 'enum', name: 'e', symbols: ['A', 'B'] }, Buffer.of(2), '"B"'],
    [{ type: 'map', values: 'int' }, Buffer.from([4, 2, 0x61, 2, 2, 0x62, 4, 0]), '{"a":1,"b":2}'],
    [{ type: 'array', items: ['null', 'int'] }, Buffer.from([4, 0, 2, 2, 0]), '[null,1]'],
    [{ type: 'array', items: 'int' }, Buffer.from([1, 2, 2, 3, 4, 4, 6, 0]), '[1,2,3]'],
    [
      {
        type: 'record',
        name: 'r',
        fields: [
          { name: 'a', type: ['null', 'int'] },
          { name: 'b', type: ['int', 'null'] },
          { name: 'c', type: ['null', 'int', 'string'] },
          { name: 'd', type: 'null' },
        ],
      },
      Buffer.from([0, 2, 4, 2, 0x78]),
      '{"c":"x"}',
    ],
    [
      {
        type: 'record',
        name: 'r',
        fields: [
          { name: 'v', type: 'int' },
          { name: 'next', type: ['null', 'r'] },
        ],
      },
      Buffer.from([2, 2, 4, 0]),
      '{"v":1,"next":{"v":2}}',
    ],
  ])('%j', (schema, datum, text) => {
    expect(textOf(schema, datum)).toBe(text);
  });
});

describe('the reader', () => {
  const record = (fields: unknown[], name = 'r'): unknown => ({ type: 'record', name, fields });

  test('fields that it does not know are kept, those that the writer does not have are absent', () => {
    const writer = record([
      { name: 'new', type: { type: 'map', values: 'int' } },
      { name: 'a', type: 'int' },
    ]);
    const reader = record([
      { name: 'a', type: ['null', 'long'], default: null },
      { name: 'b', type: ['null', 'string'], default: null },
    ]);
    expect(textOf(writer, Buffer.from([2, 2, 0x78, 4, 0, 6]), reader)).toBe('{"new":{"x":2},"a":3}');
  });

  test('a field that it knows by an alias has its name, at any depth', () => {
    const writer = record([{ name: 'meta', type: ['null', record([{ name: 'ref', type: 'string' }], 'm')] }]);
    const reader = record([
      {
        name: 'metadata',
        aliases: ['meta'],
        type: ['null', record([{ name: 'project', aliases: ['ref'], type: ['null', 'string'] }], 'm')],
      },
    ]);
    expect(textOf(writer, Buffer.from([2, 2, 0x78]), reader)).toBe('{"metadata":{"project":"x"}}');
  });

  test('an alias does not take the place of a field that the writer has', () => {
    const writer = record([
      { name: 'old', type: 'int' },
      { name: 'a', type: 'int' },
    ]);
    const reader = record([{ name: 'a', aliases: ['old'], type: 'int' }]);
    expect(textOf(writer, Buffer.from([2, 4]), reader)).toBe('{"old":1,"a":2}');
  });

  test('bytes are text where it has a string, if they are UTF-8', () => {
    const writer = record([{ name: 'a', type: 'bytes' }]);
    const reader = record([{ name: 'a', type: ['null', 'string'] }]);
    expect(textOf(writer, Buffer.from([4, 0xc3, 0xa9]), reader)).toBe('{"a":"é"}');
    expect(textOf(writer, Buffer.from([0]), reader)).toBe('{"a":""}');
    expect(textOf(writer, Buffer.from([2, 0xe9]), record([{ name: 'a', type: ['null', 'bytes', 'string'] }]))).toBe(
      '{"a":"é"}',
    );
  });

  test('bytes that are not UTF-8 are a character each, also where it has a string', () => {
    const reader = record([{ name: 'a', type: 'string' }]);
    for (const text of ['M\u00fcnchen', '"\u00c3\n', '\u00e9'.repeat(100)]) {
      const datum = avro.Type.forSchema('bytes').toBuffer(Buffer.from(text, 'latin1'));
      expect(textOf(record([{ name: 'a', type: 'bytes' }]), datum, reader)).toBe(JSON.stringify({ a: text }));
    }
    const cut = Buffer.from([20, 0xfc]);
    expect(() => textOf(record([{ name: 'a', type: 'bytes' }]), cut, reader)).toThrow(MalformedAvro);
  });

  test('a record of type error is a record, within another one too', () => {
    const error = (name: string, ...fields: object[]): object => ({ type: 'error', name, fields });
    const schema = error('r', { name: 'b', type: ['null', error('e', { name: 'a', type: 'string' })] });
    const reader = record([{ name: 'b', type: error('e', { name: 'z', aliases: ['a'], type: 'string' }) }]);
    expect(textOf(schema, Buffer.from([2, 2, 0x78]), reader)).toBe('{"b":{"z":"x"}}');
  });

  test('a type that Avro would not resolve is written as it is', () => {
    const writer = record([
      { name: 'a', type: 'string' },
      { name: 'b', type: record([{ name: 'c', type: 'double' }], 'x') },
    ]);
    const reader = record([
      { name: 'a', type: 'long' },
      { name: 'b', type: ['null', 'string'] },
    ]);
    expect(textOf(writer, Buffer.from([2, 0x37, 0, 0, 0, 0, 0, 0, 0, 0x40]), reader)).toBe('{"a":"7","b":{"c":2}}');
  });
});

// --- hostile datums ---

describe('hostile datums are malformed, at once and without much memory', () => {
  const hugeLong = Buffer.from('feffffffffffffffff01', 'hex');
  const smallestLong = Buffer.from('ffffffffffffffffff01', 'hex');
  const billion = avro.Type.forSchema('long').toBuffer(1_000_000_000);
  const minusBillion = avro.Type.forSchema('long').toBuffer(-1_000_000_000);
  const empty = { type: 'record', name: 'empty', fields: [] };
  const list = { type: 'record', name: 'list', fields: [{ name: 'next', type: ['null', 'list'] }] };
  const endless = { type: 'record', name: 'endless', fields: [{ name: 'again', type: 'endless' }] };
  const nest = { type: 'record', name: 'nest', fields: [{ name: 'in', type: { type: 'array', items: 'nest' } }] };
  /** each record holds the next twice, and the last is empty: 2^30 of them in no bytes */
  const doubling = Array.from({ length: 30 }).reduce<unknown>(
    (inner, _, i) => ({
      type: 'record',
      name: `d${i}`,
      fields: [
        { name: 'a', type: inner },
        { name: 'b', type: inner === empty ? 'empty' : `d${i - 1}` },
      ],
    }),
    empty,
  );

  test.each<[string, unknown, Buffer]>([
    ['a string of 2^63 bytes', 'string', hugeLong],
    ['a string of a billion bytes', 'string', Buffer.concat([billion, Buffer.alloc(100, 0x61)])],
    ['a negative length', 'string', Buffer.of(1)],
    ['bytes of a negative length', 'bytes', smallestLong],
    ['a length of 11 bytes', 'string', Buffer.concat([Buffer.alloc(10, 0x80), Buffer.of(0)])],
    ['a long of more than 64 bits', 'long', Buffer.from('ffffffffffffffffff02', 'hex')],
    ['a long of 11 bytes', 'long', Buffer.concat([Buffer.alloc(10, 0x80), Buffer.of(0)])],
    ['an int of more than 32 bits', 'int', Buffer.from('8080808020', 'hex')],
    ['a boolean that is neither', 'boolean', Buffer.of(2)],
    ['a union index out of range', ['null', 'int'], Buffer.of(4)],
    ['a negative union index', ['null', 'int'], Buffer.of(1)],
    ['a huge union index', ['null', 'int', 'string'], hugeLong],
    [
      'a field with a union index out of range',
      { type: 'record', name: 'r', fields: [{ name: 'a', type: ['null', 'int'] }] },
      Buffer.from([4, 2]),
    ],
    [
      'a field with a negative union index',
      { type: 'record', name: 'r', fields: [{ name: 'a', type: ['int', 'null'] }] },
      Buffer.from([1, 2]),
    ],
    ['an enum index out of range', { type: 'enum', name: 'e', symbols: ['A'] }, Buffer.of(2)],
    ['a negative enum index', { type: 'enum', name: 'e', symbols: ['A'] }, Buffer.of(1)],
    ['a billion strings', { type: 'array', items: 'string' }, Buffer.concat([billion, Buffer.alloc(100)])],
    ['a billion nulls', { type: 'array', items: 'null' }, Buffer.concat([billion, Buffer.of(0)])],
    ['a billion empty records', { type: 'array', items: empty }, Buffer.concat([billion, Buffer.of(0)])],
    [
      'a billion fixed of no size',
      { type: 'array', items: { type: 'fixed', name: 'f', size: 0 } },
      Buffer.concat([billion, Buffer.of(0)]),
    ],
    [
      'a thousand nulls, again and again',
      { type: 'array', items: 'null' },
      Buffer.concat([
        ...Array.from({ length: 100_000 }, () => avro.Type.forSchema('long').toBuffer(MAX_EMPTY_ITEMS)),
        Buffer.of(0),
      ]),
    ],
    ['2^63 items', { type: 'array', items: 'int' }, Buffer.concat([hugeLong, Buffer.alloc(100)])],
    ['-2^63 items', { type: 'array', items: 'int' }, Buffer.concat([smallestLong, Buffer.of(0), Buffer.alloc(100)])],
    [
      'minus a billion items',
      { type: 'array', items: 'null' },
      Buffer.concat([minusBillion, Buffer.of(0), Buffer.of(0)]),
    ],
    ['a negative count with a negative size', { type: 'array', items: 'int' }, Buffer.from([1, 1, 2, 0])],
    ['a negative count with a size beyond the datum', { type: 'array', items: 'int' }, Buffer.from([1, 100, 2, 0])],
    ['a negative count with a size that is too small', { type: 'array', items: 'int' }, Buffer.from([3, 2, 2, 2, 0])],
    ['a negative count with a size that is too large', { type: 'array', items: 'int' }, Buffer.from([1, 4, 2, 0])],
    ['a map of a billion entries', { type: 'map', values: 'null' }, Buffer.concat([billion, Buffer.alloc(100)])],
    ['a map without its end', { type: 'map', values: 'int' }, Buffer.from([2, 2, 0x61, 2])],
    ['a hundred thousand records within each other', list, Buffer.concat([Buffer.alloc(100_000, 2), Buffer.of(0)])],
    ['a hundred thousand lists within each other', nest, Buffer.concat([Buffer.alloc(100_000, 2), Buffer.of(0)])],
    ['a record that holds itself, in no bytes', endless, Buffer.alloc(0)],
    ['a fixed that is cut off', { type: 'fixed', name: 'f', size: 1_000_000_000 }, Buffer.alloc(10)],
    ['a double that is cut off', 'double', Buffer.alloc(7)],
    ['no bytes', 'long', Buffer.alloc(0)],
    ...[
      '80',
      'c0af',
      'e080af',
      'eda080',
      'f4908080',
      'f8888080',
      'c3',
      'e282',
      'f09f98',
      'ff',
      'c328',
      '61c0',
      '6162636465e2826162',
    ].map((hex): [string, unknown, Buffer] => [
      `a string of the bytes ${hex}`,
      'string',
      Buffer.concat([Buffer.of(hex.length), Buffer.from(hex, 'hex')]),
    ]),
  ])('%s', (_, schema, datum) => {
    const before = process.memoryUsage();
    const start = performance.now();
    expect(() => textOf(schema, datum)).toThrow(MalformedAvro);
    expect(performance.now() - start).toBeLessThan(500);
    expect(process.memoryUsage().arrayBuffers - before.arrayBuffers).toBeLessThan(8 * 1024 * 1024);
  });

  test(`nesting up to ${MAX_DEPTH} is read`, () => {
    const depth = MAX_DEPTH - 1;
    expect(textOf(list, Buffer.concat([Buffer.alloc(depth, 2), Buffer.of(0)]))).toBe(
      `${'{"next":'.repeat(depth)}{}${'}'.repeat(depth)}`,
    );
    expect(() => textOf(list, Buffer.concat([Buffer.alloc(depth + 1, 2), Buffer.of(0)]))).toThrow(MalformedAvro);
  });

  test('a text that grows beyond the limit is too large', () => {
    const symbols = { type: 'array', items: { type: 'enum', name: 'e', symbols: ['A'.repeat(1000)] } };
    const datum = Buffer.concat([avro.Type.forSchema('long').toBuffer(1_000_000), Buffer.alloc(1_000_001)]);
    const before = process.memoryUsage().arrayBuffers;
    expect(() => textOf(symbols, datum)).toThrow(TextTooLarge);
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(64 * 1024 * 1024);
    expect(() => textOf(doubling, Buffer.alloc(0))).toThrow(TextTooLarge);
    expect(() => textOf({ type: 'array', items: doubling }, Buffer.from([2, 0]))).toThrow(TextTooLarge);
    const escaped = avro.Type.forSchema('string').toBuffer('\u0001'.repeat(1000));
    expect(textOf('string', escaped, undefined, 6002)).toHaveLength(6002);
    expect(() => textOf('string', escaped, undefined, 6001)).toThrow(TextTooLarge);
  });

  test.each(['string', 'bytes'] as const)('of %s that cannot fit is refused at its first escapes', (type) => {
    const allocated = vi.spyOn(Buffer, 'allocUnsafeSlow');
    const written = (): number => Math.max(0, ...allocated.mock.calls.map(([bytes]) => bytes));
    const of = (length: number, byte: number): Buffer =>
      avro.Type.forSchema('bytes').toBuffer(Buffer.alloc(length, byte));
    expect(() => textOf(type, of(MAX_BYTES - 1, 0x61))).toThrow(TextTooLarge);
    expect(written()).toBeLessThanOrEqual(MAX_BYTES + 100);
    allocated.mockClear();
    expect(() => textOf(type, of(MAX_BYTES * 2, 0x61))).toThrow(TextTooLarge);
    expect(written()).toBeLessThanOrEqual(1024 * 1024);
    allocated.mockRestore();
    const escapes = of(MAX_BYTES - 2, 1);
    const start = performance.now();
    for (let again = 0; again < 100; again++) expect(() => textOf(type, escapes)).toThrow(TextTooLarge);
    expect(performance.now() - start).toBeLessThan(5_000);
    expect(textOf(type, of(MAX_BYTES - 2, 0x61))).toHaveLength(MAX_BYTES);
  });
});

test('one text after the other takes the same memory, and a large one is not kept', () => {
  const transcode = compile(avro.Type.forSchema('string'), undefined, noting);
  const textOfLength = (length: number): Buffer =>
    transcode(avro.Type.forSchema('string').toBuffer('x'.repeat(length)), 0, 10_000_000);
  const first = textOfLength(10);
  expect(textOfLength(2_000).buffer).toBe(first.buffer);
  expect(textOfLength(3_000_000).length).toBe(3_000_002);
  expect(textOfLength(10).buffer.byteLength).toBe(first.buffer.byteLength);
});
