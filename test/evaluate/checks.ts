import fc from 'fast-check';
import { createScanner, MAX_DEPTH, VALID } from '../../common/evaluate/scanner.ts';
import { sources, type SourceName } from '../../common/sources.ts';
import { createRandom } from '../../demo/random.ts';
import { anyEvent, anyMessage, anyTime, AWKWARD, eventWith, PATHS } from './messages.ts';
import { differences, evaluated, expectedOutcomes, outcomesOf, type Content } from './outcomes.ts';

// What is checked of evaluation by tests, by `npm run fuzz` at length, and by the mutants. Each check returns what it
// found wrong first, undefined = nothing.

const scanner = createScanner(['id', 'project', 'metadata.request.url']);
const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
/** What stands around a message in the memory that it is a part of: nothing of it may count. */
const AROUND = Buffer.from(' "}]},"a":"\\u00');

/**
 * Whether JSON.parse and a strict decoder of UTF-8 take the bytes, as an object that is nested no deeper than allowed.
 */
function isEvent(bytes: Uint8Array): boolean {
  let text: string;
  try {
    text = strict.decode(bytes);
    const value: unknown = JSON.parse(text);
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
  } catch {
    return false;
  }
  let depth = 0;
  let deepest = 0;
  for (const [bracket] of text.replace(/"(?:[^"\\]|\\.)*"/g, '').matchAll(/[[\]{}]/g)) {
    depth += bracket === '[' || bracket === '{' ? 1 : -1;
    deepest = Math.max(deepest, depth);
  }
  return deepest <= MAX_DEPTH;
}

/** Compares the scanner with JSON.parse, wherever in its memory the message lies. */
function validityDiffers(bytes: Uint8Array, shift: number): string | undefined {
  // every second message ends where its memory ends
  const memory = Uint8Array.from(
    Buffer.concat([
      AROUND.subarray(0, shift & 7),
      bytes,
      AROUND.subarray((shift & 1) === 0 ? AROUND.length : shift & 3),
    ]),
  );
  const at = scanner.scan(memory, shift & 7, (shift & 7) + bytes.length);
  const must = isEvent(bytes);
  return (at === VALID) === must
    ? undefined
    : `${must ? 'valid' : 'invalid'}, but scan says ${at}: ${Buffer.from(bytes).toString('latin1')}`;
}

function firstDifference(messages: Iterable<Uint8Array>): string | undefined {
  let shift = 0;
  for (const bytes of messages) {
    const difference = validityDiffers(bytes, shift++);
    if (difference !== undefined) return difference;
  }
  return undefined;
}

const inString = (bytes: readonly number[]): Buffer =>
  Buffer.from([...Buffer.from('{"a":"'), ...bytes, ...Buffer.from('"}')]);
/** On both sides of every border in the table of well-formed UTF-8. */
const EDGES = [0x00, 0x22, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff];

function* bytesAndPairs(): Generator<Buffer> {
  for (let a = 0; a < 256; a++) {
    for (const before of [
      '{"a":',
      '{"a":1',
      '{"a":-',
      '{"a":0',
      '{"a":1.5',
      '{"a":1e5',
      '{"a":true',
      '{"a":null',
      '{"a":{}',
      '{"a":[]',
      '{"a":[1',
      '{',
      '',
      '{"a"',
      '{"a":"b"',
    ]) {
      yield Buffer.from([...Buffer.from(before), a, ...Buffer.from('}')]);
      yield Buffer.from([...Buffer.from(before), a, ...Buffer.from('1}')]);
    }
    yield Buffer.from([...Buffer.from('{}'), a]);
    yield Buffer.from([...Buffer.from('{"a":tru'), a, 0x7d]);
    yield Buffer.from([...Buffer.from('{"a":fals'), a, 0x7d]);
    yield Buffer.from([...Buffer.from('{"a":nul'), a, 0x7d]);
    for (let b = 0; b < 256; b++) yield inString([a, b]);
    for (let k = 0; k < 4; k++) yield inString([0x5c, 0x75, ...[0x30, 0x30, 0x30, 0x30].with(k, a)]);
    if (a >= 0xc0) for (const b of EDGES) for (const c of EDGES) for (const d of EDGES) yield inString([a, b, c, d]);
    if (a >= 0xe0) for (let b = 0x80; b < 0xc0; b++) yield inString([a, b, 0x80, ...(a >= 0xf0 ? [0x80] : [])]);
  }
}

/** Strings of every length up to some words, with a byte of every class at every place, as a key and as a value. */
function* lengths(): Generator<Buffer> {
  for (let length = 0; length < 10; length++) for (const space of [' ', '\n']) yield Buffer.from(space.repeat(length));
  for (let length = 0; length < 14; length++) {
    for (const text of ['"', '\\n', '\\', '\u0000', '\u001f', 'é', '€', '😀', '!', '[', '~', '\u007f', '']) {
      for (let at = 0; at <= length; at++) {
        const content = 'x'.repeat(at) + text + 'x'.repeat(length - at);
        yield Buffer.from(`{"a":"${content}"}`);
        yield Buffer.from(`{"${content}":1}`);
      }
    }
  }
}

const WHOLE = '{"a":[1,-0.5e+7,{"b":"\\u00e9\\n","c":{}},[],true,false,null],"d":"é"}';

/** An event cut after each byte, with each byte left out or doubled, and white space everywhere. */
function* cuts(): Generator<Buffer> {
  const bytes = Buffer.from(WHOLE);
  for (let i = 0; i <= bytes.length; i++) {
    yield bytes.subarray(0, i);
    yield Buffer.concat([bytes.subarray(0, i), Buffer.from('}')]);
    yield Buffer.concat([bytes.subarray(0, i), bytes.subarray(i + 1)]);
    yield Buffer.concat([bytes.subarray(0, i + 1), bytes.subarray(i)]);
    for (const between of [
      ' ',
      '\n',
      '\t',
      '\r',
      ' \n\t\r',
      '\u000b',
      '\u00a0',
      ',',
      ':',
      '"',
      '\\',
      '{',
      '}',
      '[',
      ']',
      '-',
      '1',
      '.',
      'e',
      '+',
    ])
      yield Buffer.concat([bytes.subarray(0, i), Buffer.from(between), bytes.subarray(i)]);
  }
}

function* depths(): Generator<Buffer> {
  for (const depth of [1, 2, 255, 510, 511, 512, 513, 514, 1_000]) {
    for (const [open, close, inner] of [
      ['[', ']', ''],
      ['[', ']', '1'],
      ['{"a":', '}', '1'],
      ['[{"a":', '}]', '{}'],
    ] as const) {
      yield Buffer.from(`{"a":${open.repeat(depth)}${inner}${close.repeat(depth)}}`);
      yield Buffer.from(
        `{"b":${open.repeat(depth >> 1)}${inner}${close.repeat(depth >> 1)},"a":${open.repeat(depth)}${inner}${close.repeat(depth)}}`,
      );
    }
  }
}

export const edgesOfJson = (): string | undefined =>
  firstDifference(bytesAndPairs()) ??
  firstDifference(lengths()) ??
  firstDifference(cuts()) ??
  firstDifference(depths());

const REAL = sources
  .map(({ name }) => Buffer.from(eventWith(name)))
  .concat([Buffer.from(WHOLE), Buffer.from('{"t":"aé€😀","u":"\\ud83d\\ude00","n":[0,-1.5e3,1E-2,{}]}')]);
const MUTATIONS = Array.from('{}[]",:\\-+0123456789.eEutfnrabl/ \n\t\r', (c) => c.charCodeAt(0)).concat([
  0, 0x1f, 0x7f, 0x80, 0xbf, 0xc0, 0xc2, 0xe0, 0xe2, 0x82, 0xac, 0xed, 0xa0, 0xf0, 0x9f, 0x98, 0xf4, 0x90, 0xf5, 0xff,
]);

/** Events with one to three bytes changed, put in or left out, against JSON.parse. */
export function mutatedEvents(seed: number, count: number): string | undefined {
  const random = createRandom(seed);
  for (let k = 0; k < count; k++) {
    let bytes: Buffer = Buffer.from(REAL[random.below(REAL.length)]!);
    for (let changes = 1 + random.below(3); changes > 0; changes--) {
      const at = random.below(bytes.length);
      const byte = MUTATIONS[random.below(MUTATIONS.length)]!;
      const kind = random.below(4);
      if (kind < 2) bytes[at] = byte;
      else
        bytes = Buffer.concat([
          bytes.subarray(0, at),
          ...(kind === 2 ? [Buffer.of(byte)] : []),
          bytes.subarray(kind === 2 ? at : at + 1),
        ]);
      if (bytes.length === 0) bytes = Buffer.of(byte);
    }
    const difference = validityDiffers(bytes, k);
    if (difference !== undefined) return `mutation ${k} of seed ${seed}: ${difference}`;
  }
  return undefined;
}

/** The rows and the dead letters of the messages against a plain reading of them. */
async function outcomesDiffer(source: SourceName, contents: readonly Content[]): Promise<string | undefined> {
  const topic = `${source}.topic`;
  const [first] = differences(
    outcomesOf(source, await evaluated(source, topic, contents)),
    expectedOutcomes(source, topic, contents),
    contents,
  );
  return first === undefined ? undefined : `${source}: ${JSON.stringify(first)}`;
}

/** About the longest project. */
const LONG_PROJECTS: readonly string[] = [
  `"${'x'.repeat(65_536)}"`,
  `"${'x'.repeat(65_537)}"`,
  `"${'é'.repeat(32_768)}"`,
  `"${'é'.repeat(32_769)}"`,
  `"\\u0078${'x'.repeat(65_535)}"`,
  `"\\u0078${'x'.repeat(65_536)}"`,
  '1'.repeat(65_537),
];

/**
 * Every awkward value at every place that is read; places that are none of objects; escapes, duplicates and lists on
 * the way.
 */
export async function edgesOfFields(): Promise<string | undefined> {
  for (const { name } of sources) {
    const paths = [...PATHS[name].map((path) => path.join('.')), 'id', 'timestamp', 'project'];
    const contents: Content[] = paths.flatMap((path) => AWKWARD.map((value) => eventWith(name, { [path]: value })));
    for (const path of paths.filter((p) => p.includes('project')))
      contents.push(...LONG_PROJECTS.map((value) => eventWith(name, { [path]: value })));
    for (const text of [
      eventWith(name),
      eventWith(name, { 'metadata.request.url': '"\\u0068ttps://abcdefghijklmnopqrst.co"' }),
    ]) {
      for (const key of new Set(paths.flatMap((path) => path.split('.')))) {
        const letters = key.split('');
        for (const [k, letter] of letters.entries()) {
          for (const escape of [
            `\\u00${letter.charCodeAt(0).toString(16)}`,
            `\\u00${letter.charCodeAt(0).toString(16).toUpperCase()}`,
            `\\u01${letter.charCodeAt(0).toString(16)}`,
            '\\n',
            'é',
            '',
          ])
            contents.push(text.replace(`"${key}":`, () => `"${letters.with(k, escape).join('')}":`));
        }
        contents.push(
          text.replace(`"${key}":`, () => `"${key}":null,"${key}":`),
          text.replace(`"${key}":`, () => `"${key}x":1,"${key}":`),
          text.replace(`"${key}":`, () => `"${key.padEnd(32, 'x')}":1,"${key}":`),
        );
        contents.push(
          text.replace(`"${key}":`, () => `"${'\\u0061'.repeat(40)}":1,"${key}":`),
          text.replaceAll(`"${key}":{`, `"${key}":[{`).replace(/\}$/, ']}'),
        );
      }
    }
    contents.push(
      eventWith(name, { timestamp: undefined }),
      { value: Buffer.from(eventWith(name, { timestamp: undefined })), time: -1 },
      { value: Buffer.from(eventWith(name, { timestamp: 'null' })), time: -1 },
    );
    contents.push(
      {
        value: Buffer.from('x'),
        time: 5e15,
        key: Buffer.of(0, 255),
        headers: [
          ['', null],
          ['é'.repeat(200), Buffer.alloc(300, 7)],
        ],
      },
      { value: null },
    );
    const difference = await outcomesDiffer(name, contents);
    if (difference !== undefined) return difference;
  }
  return undefined;
}

/** Letters, 20 of which stand nowhere twice. */
const letters = (count: number): string =>
  Array.from({ length: count }, (_, k) => String.fromCharCode(97 + ((k * k + 3 * k + (k >> 3)) % 26))).join('');

/** References and families on the borders of what is kept. */
export async function edgesOfRequests(): Promise<string | undefined> {
  const contents: Content[] = [];
  for (let n = 15; n < 300; n++) {
    for (const url of [
      letters(n),
      `${letters(40)}.${letters(n)}/${'z'.repeat(n)}`,
      `https://${letters(n)}A${letters(20)}`,
      `${letters(20)}-`.repeat(n >> 4),
    ])
      contents.push(eventWith('edge_logs', { 'metadata.request.url': JSON.stringify(url) }));
  }
  for (const letter of ['`', '{', 'A', 'é'])
    contents.push(
      eventWith('edge_logs', {
        'metadata.request.url': JSON.stringify(`${letters(19)}${letter}${letters(19)}${letter}${letters(21)}`),
      }),
    );
  for (const mark of ['/rest', '/storage', '/auth', '/realtime']) {
    for (let length = 0; length <= mark.length; length++) {
      for (const path of [
        mark.slice(0, length),
        `/x${mark.slice(0, length)}`,
        `${mark.slice(0, length)}${mark}`,
        `${mark.slice(0, length)}x${mark.slice(length)}`,
        `${mark}/auth/rest/storage`,
      ])
        contents.push(eventWith('edge_logs', { 'metadata.request.path': JSON.stringify(path) }));
    }
  }
  return await outcomesDiffer('edge_logs', contents);
}

const NOW = '2026-03-01T12:00:00';

/** Every edge of the grammar of timestamps, and of what is in range, to the microsecond. */
export async function edgesOfTimes(): Promise<string | undefined> {
  const texts: string[] = ['1772366399', '1772366399123', '1772366399123456', '1772366399123456789'].flatMap((digits) =>
    Array.from({ length: digits.length + 2 }, (_, k) => (digits + '0123').slice(0, k)),
  );
  for (const digits of ['1772366399', '0000000000', '9999999999', '1764590400', '1764590399'])
    for (const rest of [
      '',
      '.',
      '.0',
      '.5',
      '.999999',
      '.9999999',
      '.000001',
      '.0000001',
      '..',
      '.1.',
      '.1e1',
      'e1',
      ' ',
      '.123456789012345678901234567890',
    ])
      texts.push(digits + rest, `-${digits}${rest}`, `+${digits}${rest}`);
  const dates = [
    '2026-03-01',
    '2026-02-28',
    '2026-02-29',
    '2024-02-29',
    '2000-02-29',
    '1900-02-29',
    '2026-04-30',
    '2026-04-31',
    '2026-12-31',
    '2026-00-01',
    '2026-13-01',
    '2026-01-00',
    '2026-01-32',
    '0000-01-01',
    '0001-01-01',
    '0099-12-31',
    '9999-12-31',
    '2025-12-01',
    '26-03-01',
    '02026-03-01',
    '2026-3-1',
    '2026/03/01',
    '20260301',
  ];
  const times = [
    '',
    'T11:00',
    ' 11:00',
    'T11:00:00',
    'T00:00',
    'T23:59:59',
    'T24:00',
    'T23:60',
    'T23:59:60',
    'T11',
    'T11:0',
    'T11:00:',
    'T11:00:00.',
    'T11:00:00.1',
    'T11:00:00.123456',
    'T11:00:00.1234567',
    'T11:00:00.123456789',
    'T11:00:00.1234567890',
    'T11:00.5',
    't11:00',
    '_11:00',
    'T 11:00',
  ];
  const zones = [
    '',
    'Z',
    'z',
    '+00:00',
    '-00:00',
    '+0000',
    '+01:30',
    '-01:30',
    '-0130',
    '+23:59',
    '-23:59',
    '+24:00',
    '+00:60',
    '+1:00',
    '+01',
    ' Z',
    'ZZ',
    '+01:00Z',
  ];
  for (const date of dates)
    for (const time of times)
      for (const zone of zones)
        if (date.startsWith('2026-03') || zone === '' || zone === 'Z' || time === '' || time === 'T11:00')
          texts.push(date + time + zone);
  for (const edge of [
    '2026-03-01T13:00:00',
    '2026-03-01T13:00:00.000001',
    '2026-03-01T13:00:00.0000009',
    '2025-12-01T12:00:00',
    '2025-12-01T11:59:59.999999',
    '2025-12-01T12:00:00.000001',
    NOW,
  ])
    texts.push(edge, `${edge}Z`);
  for (const micros of [1_764_590_400_000_000n, 1_772_370_000_000_000n])
    for (const near of [-1n, 0n, 1n]) texts.push(String(micros + near), `${micros + near}999`);
  for (const micros of ['1764590400', '1772370000'])
    texts.push(`${micros}.000000`, `${micros}.000001`, `${micros}.0000009`, micros);
  const contents: Content[] = texts.map((text) => eventWith('auth_logs', { timestamp: JSON.stringify(text) }));
  for (const text of texts)
    if (/^(?:0|[1-9]\d*)(?:\.\d+)?$/.test(text)) contents.push(eventWith('auth_logs', { timestamp: text }));
  for (const time of [
    -1,
    0,
    1_764_590_400_000,
    1_764_590_399_999,
    1_772_370_000_000,
    1_772_370_000_001,
    Number.MAX_SAFE_INTEGER,
  ])
    contents.push({ value: Buffer.from(eventWith('auth_logs', { timestamp: undefined })), time });
  return await outcomesDiffer('auth_logs', contents);
}

/** Random events and what mutations make of them, for every source: `runs` batches each. */
export async function randomMessages(seed: number, runs: number): Promise<void> {
  for (const { name } of sources) {
    const event = fc
      .oneof(
        { weight: 3, arbitrary: anyEvent(name) },
        { weight: 1, arbitrary: anyTime.map((timestamp) => eventWith(name, { timestamp })) },
      )
      .map((text) => Buffer.from(text));
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.oneof(event, anyMessage(name)), { minLength: 1, maxLength: 60 }),
        async (contents) => {
          const difference = await outcomesDiffer(name, contents);
          if (difference !== undefined) throw new Error(difference);
        },
      ),
      { seed, numRuns: runs, endOnFailure: true },
    );
  }
}
