import fc from 'fast-check';
import type { SourceName } from '../../common/sources.ts';

/** Where the mapping of each source reads; also what stands beside and above it. */
export const PATHS: { readonly [source in SourceName]: readonly (readonly string[])[] } = {
  edge_logs: [
    ['metadata'],
    ['metadata', 'request'],
    ['metadata', 'request', 'url'],
    ['metadata', 'request', 'host'],
    ['metadata', 'request', 'path'],
    ['metadata', 'request', 'method'],
    ['metadata', 'response'],
    ['metadata', 'response', 'status_code'],
  ],
  function_edge_logs: [
    ['metadata'],
    ['metadata', 'project_ref'],
    ['metadata', 'function_id'],
    ['metadata', 'execution_time_ms'],
    ['metadata', 'response'],
    ['metadata', 'response', 'status_code'],
  ],
  postgres_logs: [['metadata'], ['metadata', 'parsed'], ['metadata', 'parsed', 'error_severity']],
  function_logs: [['metadata'], ['metadata', 'project_ref'], ['metadata', 'level']],
  auth_logs: [['metadata'], ['metadata', 'level'], ['metadata', 'project']],
  realtime_logs: [['metadata'], ['metadata', 'project'], ['metadata', 'level']],
  storage_logs: [['metadata'], ['metadata', 'project'], ['metadata', 'level']],
  postgrest_logs: [['metadata'], ['metadata', 'level']],
  pgbouncer_logs: [['metadata'], ['metadata', 'level']],
};

const TYPICAL: { readonly [source in SourceName]: { readonly [path: string]: string } } = {
  edge_logs: {
    'metadata.request.url': '"https://abcdefghijklmnopqrst.supabase.co/rest/v1/t"',
    'metadata.request.host': '"abcdefghijklmnopqrst.supabase.co"',
    'metadata.request.path': '"/rest/v1/t"',
    'metadata.request.method': '"GET"',
    'metadata.response.status_code': '200',
  },
  function_edge_logs: {
    'metadata.project_ref': '"abcdefghijklmnopqrst"',
    'metadata.function_id': '"f-1"',
    'metadata.execution_time_ms': '12',
    'metadata.response.status_code': '200',
  },
  postgres_logs: { 'metadata.parsed.error_severity': '"LOG"' },
  function_logs: { 'metadata.project_ref': '"abcdefghijklmnopqrst"', 'metadata.level': '"info"' },
  auth_logs: { 'metadata.level': '"info"', 'metadata.project': '"another"' },
  realtime_logs: { 'metadata.project': '"abcdefghijklmnopqrst"', 'metadata.level': '"info"' },
  storage_logs: { 'metadata.project': '"abcdefghijklmnopqrst"', 'metadata.level': '"info"' },
  postgrest_logs: { 'metadata.level': '"info"' },
  pgbouncer_logs: { 'metadata.level': '"info"' },
};

const ENVELOPE: { readonly [key: string]: string } = {
  id: '"id-1"',
  timestamp: '1772366399123456',
  event_message: '"m"',
  project: '"abcdefghijklmnopqrst"',
};

/**
 * A place in the event, its names joined by dots, and the JSON text that stands there instead; undefined = the key is
 * absent.
 */
type Changes = { readonly [path: string]: string | undefined };

/** The JSON text of a usual event of the source with changes. */
export function eventWith(source: SourceName, changes: Changes = {}): string {
  const leaves: { readonly [path: string]: string | undefined } = { ...ENVELOPE, ...TYPICAL[source], ...changes };
  const write = (prefix: string): string => {
    const names = new Set(
      Object.keys(leaves).flatMap((path) =>
        path.startsWith(prefix) ? [path.slice(prefix.length).split('.')[0]!] : [],
      ),
    );
    return `{${[...names]
      .flatMap((name) => {
        const path = prefix + name;
        if (Object.hasOwn(leaves, path))
          return leaves[path] === undefined ? [] : [`${JSON.stringify(name)}:${leaves[path]}`];
        return [`${JSON.stringify(name)}:${write(`${path}.`)}`];
      })
      .join(',')}}`;
  };
  return write('');
}

/** What a place may hold that the engine's own reader could take for something else. */
export const AWKWARD: readonly string[] = [
  'null',
  'true',
  'false',
  '0',
  '-0',
  '1',
  '-1',
  '404',
  '404.0',
  '404.5',
  '1.50',
  '1e5',
  '1E+2',
  '-0.0',
  '1e9',
  '1e400',
  '-1e400',
  '1e-400',
  '9007199254740993',
  '9223372036854775807',
  '9223372036854775808',
  '18446744073709551615',
  '18446744073709551616',
  '-9223372036854775809',
  '123456789012345678901234567890',
  '0.1',
  '12.5',
  '65535',
  '65536',
  '1772366399',
  '1772366399.5',
  '1772366399.1234569999',
  '1772366399000',
  '1.772366399e9',
  '""',
  '" "',
  '"0"',
  '"-0"',
  '"404"',
  '"404.0"',
  '"1.50"',
  '"1e5"',
  '"1e400"',
  '"inf"',
  '"nan"',
  '"0x10"',
  '" 404"',
  '"404 "',
  '"+5"',
  '"5."',
  '".5"',
  '"-1"',
  '"12.5"',
  '"true"',
  '"null"',
  '"{}"',
  '"[]"',
  '"{\\"status_code\\":200}"',
  '"abc"',
  '"sabc"',
  '"n5"',
  '"s"',
  '"\\u0000"',
  '"a\\u0000b"',
  '"\\ud800"',
  '"\\ud83d\\ude00"',
  '"x\\udc00y"',
  '"\\u002f"',
  '"é漢😀"',
  '"\\n\\t\\"\\\\"',
  '"2026-03-01T11:00:00Z"',
  '"http"',
  '"/"',
  '"https://x.co/abcdefghijklmnopqrstuvwxyz/rest"',
  '{}',
  '{"a":1}',
  '{"item":1}',
  '{"url":"https://abcdefghijklmnopqrst.co","path":"/auth"}',
  '{"status_code":404}',
  '{"level":"warn","project":"p","project_ref":"r"}',
  '{"request":{"url":"u"},"response":{}}',
  '[]',
  '[null]',
  '[1]',
  '["x"]',
  '["x","y","z","w","v"]',
  '[null,"x"]',
  '[ null , "x"]',
  '[null,null,null,null,"x"]',
  '[{}]',
  '[{"a":1}]',
  '[{"status_code":"503","url":"https://l"},{"status_code":1}]',
  '[null,{"status_code":503,"url":"https://l"}]',
  '[[{"status_code":503}]]',
  '[[null,"x"]]',
  '[1,{"status_code":503}]',
  '[true]',
  '[{"level":"list","project":"lp","project_ref":"lr","error_severity":"E","url":"https://in.list","request":[{"url":"https://deep","path":"/storage"}],"response":[{"status_code":"418"}],"parsed":[{"error_severity":"ERROR"}]}]',
];

const awkward = fc.constantFrom(...AWKWARD);
const keyWritten = (key: string) =>
  fc.constantFrom(
    key,
    key,
    key,
    key,
    key,
    key,
    key,
    key,
    key,
    key,
    key,
    `${String.raw`\u00`}${key.charCodeAt(0).toString(16)}${key.slice(1)}`,
  );
const space = fc.constantFrom('', '', '', ' ', '\n', '\t', '\r\n ');

/** Any JSON value, mostly small. */
const anything = fc.oneof(
  { weight: 4, arbitrary: awkward },
  { weight: 1, arbitrary: fc.json({ maxDepth: 3 }) },
  { weight: 1, arbitrary: fc.double({ noNaN: true, noDefaultInfinity: true }).map(String) },
  { weight: 1, arbitrary: fc.bigInt({ min: -(2n ** 70n), max: 2n ** 70n }).map(String) },
  { weight: 1, arbitrary: fc.string({ unit: 'binary', maxLength: 20 }).map((s) => JSON.stringify(s)) },
);

/** A value at one of the source's places and everything around it: usual, awkward, listed, doubled, spaced. */
function valueAt(source: SourceName, path: readonly string[]): fc.Arbitrary<string> {
  const deeper = childrenOf(source, path);
  if (deeper.length === 0) {
    const typical = TYPICAL[source][path.join('.')] ?? '"x"';
    return fc.oneof({ weight: 12, arbitrary: fc.constant(typical) }, { weight: 2, arbitrary: anything });
  }
  const object = fc
    .tuple(fc.tuple(...deeper.map((name) => members(source, [...path, name]))), fc.array(other(), { maxLength: 2 }))
    .map(([known, unknown]) => join([...known.flat(), ...unknown]));
  return fc.oneof(
    { weight: 20, arbitrary: object },
    {
      weight: 1,
      arbitrary: fc
        .tuple(object, fc.array(anything, { maxLength: 2 }))
        .map(([first, rest]) => `[${[first, ...rest].join(',')}]`),
    },
    { weight: 1, arbitrary: fc.tuple(anything, object).map(([first, second]) => `[${first},${second}]`) },
    { weight: 1, arbitrary: anything },
  );
}

function childrenOf(source: SourceName, path: readonly string[]): string[] {
  return PATHS[source]
    .filter((p) => p.length === path.length + 1 && path.every((name, i) => p[i] === name))
    .map((p) => p.at(-1)!);
}

const join = (texts: readonly string[]): string => `{${texts.join(',')}}`;

/** The key with its value once, mostly; twice or not at all, sometimes. */
function members(source: SourceName, path: readonly string[]): fc.Arbitrary<string[]> {
  const one = fc
    .tuple(keyWritten(path.at(-1)!), space, valueAt(source, path), space)
    .map(([key, before, value, behind]) => `"${key}"${before}:${behind}${value}`);
  return fc.oneof(
    { weight: 20, arbitrary: one.map((m) => [m]) },
    { weight: 1, arbitrary: fc.constant<string[]>([]) },
    { weight: 1, arbitrary: fc.tuple(anything, one).map(([value, m]) => [`"${path.at(-1)!}":${value}`, m]) },
  );
}

function other(): fc.Arbitrary<string> {
  return fc
    .tuple(
      fc.constantFrom('a', 'timestamp', 'id', 'metadata', 'kafka_offset', 'reason', 'offset', 'item', ''),
      anything,
    )
    .map(([key, value]) => `${JSON.stringify(key)}:${value}`);
}

/** Times and near misses of their notations. */
export const anyTime: fc.Arbitrary<string> = fc.oneof(
  { weight: 3, arbitrary: fc.constant('1772366399123456') },
  { weight: 2, arbitrary: anything },
  {
    weight: 4,
    arbitrary: fc
      .tuple(
        digits(),
        fc.constantFrom('', '', '', '.', '.0', '.5', '.1234569999', 'e0', 'E3', '.123456789012345678901'),
        fc.boolean(),
      )
      .map(([whole, rest, quoted]) =>
        quoted || rest === '.' || (whole.startsWith('0') && whole !== '0') ? `"${whole}${rest}"` : whole + rest,
      ),
  },
  { weight: 8, arbitrary: calendar().map((text) => JSON.stringify(text)) },
);

/** Near the moment of judgement, or anything; of any number of digits. */
function digits(): fc.Arbitrary<string> {
  const near = fc
    .tuple(
      fc.integer({ min: 1_764_590_000, max: 1_772_372_000 }),
      fc.bigInt({ min: 0n, max: 999_999_999n }),
      fc.constantFrom(10, 13, 16, 19, 9, 11, 12, 14, 17, 18, 20),
    )
    .map(([seconds, nanos, size]) => `${seconds}${String(nanos).padStart(9, '0')}0`.slice(0, size));
  return fc.oneof(
    { weight: 3, arbitrary: near },
    { weight: 1, arbitrary: fc.bigInt({ min: 0n, max: 10n ** 20n }).map(String) },
  );
}

function calendar(): fc.Arbitrary<string> {
  const two = (usual: fc.Arbitrary<number>) =>
    fc.oneof(
      { weight: 12, arbitrary: usual.map((n) => String(n).padStart(2, '0')) },
      {
        weight: 1,
        arbitrary: fc.constantFrom(
          '00',
          '13',
          '24',
          '29',
          '30',
          '31',
          '32',
          '59',
          '60',
          '61',
          '99',
          '1',
          '001',
          '',
          '+1',
          ' 1',
          '١٢',
        ),
      },
    );
  const year = fc.oneof(
    { weight: 8, arbitrary: fc.constant('2026') },
    {
      weight: 1,
      arbitrary: fc.constantFrom(
        '2025',
        '2024',
        '1970',
        '0000',
        '0001',
        '0010',
        '0100',
        '1000',
        '1899',
        '2300',
        '9999',
        '26',
        '12026',
        '-2026',
      ),
    },
  );
  const date = fc
    .tuple(
      year,
      two(fc.integer({ min: 1, max: 12 })),
      two(fc.integer({ min: 1, max: 28 })),
      fc.constantFrom('-', '-', '-', '-', '-', '-', '/', ''),
    )
    .map(([y, m, d, s]) => `${y}${s}${m}${s}${d}`);
  const time = fc
    .tuple(
      two(fc.integer({ min: 0, max: 23 })),
      two(fc.integer({ min: 0, max: 59 })),
      fc.oneof(
        { weight: 4, arbitrary: two(fc.integer({ min: 0, max: 59 })) },
        { weight: 1, arbitrary: fc.constant(undefined) },
      ),
      fc.oneof(
        { weight: 2, arbitrary: fc.constant('') },
        { weight: 3, arbitrary: fc.stringMatching(/^[0-9]{0,12}$/).map((f) => `.${f}`) },
        { weight: 1, arbitrary: fc.constantFrom(',5', '.5.', '. 5', '.x') },
      ),
    )
    .map(([h, m, s, f]) => `${h}:${m}${s === undefined ? '' : `:${s}${f}`}`);
  const zone = fc.oneof(
    { weight: 3, arbitrary: fc.constantFrom('', 'Z', '+00:00', '-00:00', '+0530', '-03:30', '+23:59') },
    {
      weight: 1,
      arbitrary: fc.constantFrom(
        'z',
        ' Z',
        ' +01:00',
        '+1:00',
        '+01',
        '+24:00',
        '+00:60',
        '+01:0',
        'UTC',
        'GMT',
        '[Europe/Berlin]',
        '−01:00',
        'ZZ',
        '+0100Z',
      ),
    },
  );
  const whole = fc
    .tuple(
      date,
      fc.oneof(
        {
          weight: 6,
          arbitrary: fc.tuple(fc.constantFrom('T', 'T', 'T', ' ', ' ', 't', '  ', '_'), time).map(([s, t]) => s + t),
        },
        { weight: 1, arbitrary: fc.constant('') },
      ),
      zone,
    )
    .map((parts) => parts.join(''));
  return fc.oneof(
    { weight: 20, arbitrary: whole },
    { weight: 1, arbitrary: time },
    { weight: 1, arbitrary: whole.map((t) => ` ${t}`) },
    { weight: 1, arbitrary: whole.map((t) => `${t} `) },
    {
      weight: 1,
      arbitrary: fc.constantFrom(
        'now',
        'today',
        '1 Mar 2026',
        'Sun, 01 Mar 2026 09:00:00 GMT',
        '20260301T110000Z',
        '2026-W09-7',
        '2026-060',
        'March 1 2026',
      ),
    },
  );
}

/** Events of a source in which anything may stand anywhere, in any order. */
export function anyEvent(source: SourceName): fc.Arbitrary<string> {
  const key = (name: string, value: fc.Arbitrary<string>) =>
    fc.oneof(
      {
        weight: 16,
        arbitrary: fc.tuple(keyWritten(name), space, value, space).map(([k, a, v, b]) => [`"${k}"${a}:${b}${v}`]),
      },
      { weight: 1, arbitrary: fc.constant([]) },
      { weight: 1, arbitrary: fc.tuple(anything, value).map(([first, v]) => [`"${name}":${first}`, `"${name}":${v}`]) },
    );
  return fc
    .tuple(
      key('id', fc.oneof({ weight: 4, arbitrary: fc.constant('"id-1"') }, { weight: 1, arbitrary: anything })),
      key(
        'project',
        fc.oneof({ weight: 4, arbitrary: fc.constant('"abcdefghijklmnopqrst"') }, { weight: 1, arbitrary: anything }),
      ),
      key(
        'timestamp',
        fc.oneof({ weight: 3, arbitrary: fc.constant('1772366399123456') }, { weight: 1, arbitrary: anyTime }),
      ),
      key('metadata', valueAt(source, ['metadata'])),
      fc.array(other(), { maxLength: 2 }),
      fc.infiniteStream(fc.nat()),
      fc.tuple(space, space),
    )
    .map(([id, project, timestamp, metadata, others, order, [before, behind]]) => {
      const all = [id, project, timestamp, metadata, others]
        .flat()
        .map((text) => [order.next().value as number, text] as const);
      return `${before}${join(all.toSorted(([a], [b]) => a - b).map(([, text]) => text))}${behind}`;
    });
}

/** What a mutation puts in: what JSON is made of, and bytes that it may not hold. */
const INTERESTING: readonly (readonly number[])[] = [
  '{',
  '}',
  '[',
  ']',
  '"',
  ',',
  ':',
  '\\',
  '-',
  '0',
  '9',
  '.',
  'e5',
  'null',
  'true',
  ' ',
  '\n',
  '\\u',
  '\\ud800',
  '/',
  '\u0000',
  '\u0007',
  '\ufeff',
  'é',
  ',}',
  '}{',
  '[null,',
]
  .map((text): readonly number[] => [...Buffer.from(text)])
  .concat([[0xff], [0x80], [0xc0, 0xaf], [0xed, 0xa0, 0x80], [0xf5]]);

type Mutation = {
  readonly kind: 'insert' | 'replace' | 'delete' | 'double' | 'cut';
  readonly at: number;
  readonly length: number;
  readonly bytes: readonly number[];
};

const mutation: fc.Arbitrary<Mutation> = fc.record({
  kind: fc.constantFrom('insert', 'insert', 'replace', 'replace', 'delete', 'delete', 'double', 'cut'),
  // evenly: fast-check's own bias is to the ends, and there a message is not an event
  at: fc.noBias(fc.nat(999)).map((n) => n / 1000),
  length: fc.integer({ min: 1, max: 6 }),
  bytes: fc.constantFrom(...INTERESTING),
});

function mutated(value: Buffer, { kind, at, length, bytes }: Mutation): Buffer {
  const from = Math.floor(at * value.length);
  const [before, there, behind] = [
    value.subarray(0, from),
    value.subarray(from, from + length),
    value.subarray(from + length),
  ];
  switch (kind) {
    case 'insert':
      return Buffer.concat([before, Buffer.from(bytes), there, behind]);
    case 'replace':
      return Buffer.concat([before, Buffer.from(bytes), behind]);
    case 'delete':
      return Buffer.concat([before, behind]);
    case 'double':
      return Buffer.concat([before, there, there, behind]);
    case 'cut':
      return before;
  }
}

/** Events of a source, and what comes of them by a few changes of bytes: still JSON about as often as not. */
export function anyMessage(source: SourceName): fc.Arbitrary<Buffer> {
  const event = anyEvent(source).map((text) => Buffer.from(text));
  const usual = fc.constant(Buffer.from(eventWith(source)));
  return fc.oneof(
    { weight: 2, arbitrary: event },
    {
      weight: 3,
      arbitrary: fc
        .tuple(fc.oneof(event, usual), fc.array(mutation, { minLength: 1, maxLength: 3 }))
        .map(([value, changes]) => changes.reduce(mutated, value)),
    },
  );
}
