import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { sources, type SourceName } from '../../../common/sources.ts';
import { openTestClickHouse, type TestClickHouse } from '../../harness/clickhouse.ts';
import { eventWith } from '../../evaluate/messages.ts';
import { differences, EVALUATED_AT, RECORD_TIME, type Content } from '../../evaluate/outcomes.ts';
import { createWorld, type World } from './world.ts';

// Guarantee: one bad message never holds back or takes along a good one, and no content of a message can add, remove or
// change another row.
// Each hostile message has the outcome written beside it, alone and among good ones, whose rows are what they are
// without it.

type Outcome =
  | 'row'
  | 'skipped'
  | 'not_an_event'
  | 'malformed_json'
  | 'malformed_avro'
  | 'unknown_schema'
  | 'missing_project'
  | 'bad_timestamp'
  | 'timestamp_out_of_range'
  | 'too_large';
interface Case {
  readonly name: string;
  readonly message: Content;
  readonly outcome: Outcome;
  /** what of the row is said here and not only by the oracle */
  readonly row?: { readonly [column: string]: unknown };
}

const SOURCE: SourceName = 'edge_logs';
const event = (changes: { readonly [path: string]: string | undefined } = {}): string => eventWith(SOURCE, changes);
const bytes = (hex: string): Buffer => Buffer.from(hex, 'hex');
const nested = (levels: number): string =>
  `{"project":"p","timestamp":1772366399123456,"a":${'['.repeat(levels - 1)}${']'.repeat(levels - 1)}}`;
const ofSize = (size: number): string => {
  const head = '{"id":"large","project":"p","timestamp":1772366399123456,"event_message":"';
  return `${head}${'x'.repeat(size - head.length - 2)}"}`;
};
const of = (message: Content, outcome: Outcome, name: string, row?: Case['row']): Case => ({
  name,
  message,
  outcome,
  ...(row === undefined ? {} : { row }),
});

const SHAPES: readonly Case[] = [
  of({ value: null }, 'skipped', 'a null value'),
  of('', 'not_an_event', 'zero bytes'),
  of(' \r\n\t', 'not_an_event', 'white space'),
  of('[]', 'not_an_event', 'an empty list'),
  of(`[${event()}]`, 'not_an_event', 'a list of an event'),
  of('[null', 'not_an_event', 'half a list'),
  ...['null', 'true', '1', '-1.5', '"text"', 'abc', '\ufeff{}', '<xml/>'].map((text) =>
    of(text, 'not_an_event', `the scalar ${text}`),
  ),
  of(Buffer.from([0xff, 0xfe]), 'not_an_event', 'bytes of no form'),
  of('{}', 'missing_project', 'an empty object'),
  of('{', 'malformed_json', 'an open brace'),
  of(event().slice(0, -1), 'malformed_json', 'a cut event'),
  of('{"project":"p","a":', 'malformed_json', 'the first half of an object'),
  of('1}', 'not_an_event', 'its second half'),
  of('{"project":"p",', 'malformed_json', 'the first half, cut between members'),
  of('"id":"joined"}', 'not_an_event', 'its rest'),
  of(`${event()}${event()}`, 'malformed_json', 'two events in one message'),
  of(`${event()}\n${event()}`, 'malformed_json', 'two lines in one message'),
  of(`${event()},`, 'malformed_json', 'a comma behind'),
  of(`${event()} \n`, 'row', 'white space behind'),
  of(`\r\n\t ${event()}`, 'row', 'white space before'),
  of('{"project":"p",}', 'malformed_json', 'a trailing comma in an object'),
  of('{"project":"p","a":[1,]}', 'malformed_json', 'a trailing comma in a list'),
  of('{"project":"p","a":{"b":[{"c":1,}]}}', 'malformed_json', 'a trailing comma deep in it'),
  of("{'project':'p'}", 'malformed_json', 'single quotes'),
  of('{project:"p"}', 'malformed_json', 'a key without quotes'),
  of('{"project":"p","a":NaN}', 'malformed_json', 'NaN'),
  of('{"project":"p","a":01}', 'malformed_json', 'a leading zero'),
  of('{"project":"p","a":"\t"}', 'malformed_json', 'a control character'),
  of('{"project":"p"/**/}', 'malformed_json', 'a comment'),
  of(
    Buffer.concat([Buffer.from('{"project":"p","a":"'), bytes('ff'), Buffer.from('"}')]),
    'malformed_json',
    'a byte that is never UTF-8',
  ),
  of(
    Buffer.concat([Buffer.from('{"project":"p","a":"'), bytes('c0af'), Buffer.from('"}')]),
    'malformed_json',
    'an overlong form',
  ),
  of(
    Buffer.concat([Buffer.from('{"project":"p","a":"'), bytes('eda080'), Buffer.from('"}')]),
    'malformed_json',
    'a surrogate in UTF-8',
  ),
  of(
    Buffer.concat([Buffer.from('{"project":"p","a":"'), bytes('e282')]),
    'malformed_json',
    'a character cut in the middle',
  ),
  of(Buffer.concat([Buffer.from(event()), bytes('00')]), 'malformed_json', 'a NUL byte behind'),
  of(
    Buffer.concat([bytes('00'), Buffer.from(event())]),
    'unknown_schema',
    'a NUL byte before: the form of a schema registry',
  ),
  of(bytes('00010203'), 'malformed_avro', 'a schema id that is cut'),
  of(bytes('c301000102030405060708'), 'unknown_schema', 'an Avro object of an unknown schema'),
  of(bytes('c301'), 'malformed_avro', 'an Avro object that is cut'),
  of('{"project":"p","a":"\u0000"}', 'malformed_json', 'a NUL byte in a string'),
];

const CONTENTS: readonly Case[] = [
  of(event({ id: '"n\\u0000l"', project: '"p\\u0000"', event_message: '"\\u0000"' }), 'row', 'NUL as an escape', {
    id: 'n\0l',
    project: 'p\0',
  }),
  of(
    '{"project":"p","timestamp":1772366399123456,"kafka_offset":0,"kafka_topic":"x","kafka_partition":9,"offset":1,"reason":"not_an_event","message":"{}","original":"{}","batch_last":0,"given_reason":"too_large","probe":"{}"}',
    'row',
    'keys of our own columns',
    { project: 'p' },
  ),
  of(
    '{"id":"first","id":"second","project":"p","project":"q","timestamp":1772366399123456,"timestamp":"never"}',
    'row',
    'duplicate keys: the first counts',
    { id: 'first', project: 'p', timestamp: '1772366399123456' },
  ),
  of('{"project":null,"project":"q"}', 'missing_project', 'duplicate keys, the first null'),
  of(event({ a: '1e400' }), 'row', '1e400 somewhere'),
  of(event({ 'metadata.response.status_code': '1e400' }), 'row', '1e400 as status', { status_code: null }),
  of(event({ id: '1e400' }), 'row', '1e400 as id', { id: '1e400' }),
  of(event({ timestamp: '1e400' }), 'bad_timestamp', '1e400 as time'),
  of(event({ id: '123456789012345678901234567890', a: '-99999999999999999999.5' }), 'row', 'numbers beyond 64 bits', {
    id: '123456789012345678901234567890',
  }),
  of(event({ id: '18446744073709551615' }), 'row', 'the largest number of 64 bits', { id: '18446744073709551615' }),
  of(event({ id: '1.50', project: '-0' }), 'row', 'numbers keep their digits', { id: '1.50', project: '-0' }),
  of(event({ id: '"\\ud800"' }), 'row', 'a lone surrogate as an escape', { id: '\ufffd' }),
  of(nested(512), 'row', '512 levels'),
  of(nested(5_000), 'malformed_json', '5,000 levels'),
  of(
    `{"project":"p","timestamp":1772366399123456,"a":${'{"b":'.repeat(511)}1${'}'.repeat(511)}}`,
    'row',
    '512 levels of objects',
  ),
  of(`{"project":"p","a":${'{"b":'.repeat(5_000)}1${'}'.repeat(5_000)}}`, 'malformed_json', '5,000 levels of objects'),
  of('['.repeat(5_000), 'not_an_event', '5,000 brackets'),
  of(ofSize(5_000_000), 'row', '5 MB', { id: 'large' }),
  of(ofSize(8 * 1024 * 1024), 'row', '8 MiB', { id: 'large' }),
  of(ofSize(8 * 1024 * 1024 + 1), 'too_large', 'a byte more than 8 MiB'),
  of(ofSize(9_000_000), 'too_large', '9 MB'),
  of(ofSize(9_000_000).replace('{', ' '), 'too_large', '9 MB of no event'),
  of(
    {
      value: Buffer.from(event()),
      key: Buffer.from([0, 255]),
      headers: [
        ['empty', null],
        ['', Buffer.from('x')],
        ['empty', Buffer.alloc(0)],
        ['ünï', bytes('ff00')],
      ],
    },
    'row',
    'headers without values',
  ),
  of(
    {
      value: Buffer.from('[1]'),
      key: Buffer.from([0, 255]),
      headers: [
        ['empty', null],
        ['', Buffer.from('x')],
        ['empty', Buffer.alloc(0)],
        ['ünï', bytes('ff00')],
      ],
    },
    'not_an_event',
    'a dead letter with headers without values',
  ),
  of(
    event({
      metadata: '[{"request":[{"url":"https://in.a/list"}],"response":[{"status_code":"503"},{"status_code":200}]}]',
    }),
    'row',
    'lists of objects',
    { url: 'https://in.a/list', status_code: 503 },
  ),
  of(event({ metadata: '[null,{"request":{"url":"u"}}]' }), 'row', 'a list that begins with null', {
    url: null,
    status_code: null,
  }),
  of(event({ metadata: '"text"' }), 'row', 'metadata that is text', { url: null }),
  of(
    event({ 'metadata.request.url': `"https://${'abcdefghijklm'.repeat(80_000)}"` }),
    'row',
    'a url of a million letters',
    { refs_overflow: true },
  ),
  ...['null', '""', 'true', '{}', '[]', '["p"]'].map((project) =>
    of(event({ project, 'metadata.request.url': undefined }), 'missing_project', `project ${project}`),
  ),
  of(event({ project: undefined, 'metadata.request.url': undefined }), 'missing_project', 'no project'),
  of(event({ project: 'null' }), 'row', 'no project but a url', {
    project: '',
    url: 'https://abcdefghijklmnopqrst.supabase.co/rest/v1/t',
  }),
  of(event({ project: '42' }), 'row', 'a number as project', { project: '42' }),
];

const TIME = '1772366399';
const TIMES: readonly Case[] = [
  ...[
    [TIME, '1772366399000000'],
    [`"${TIME}"`, '1772366399000000'],
    [`${TIME}123`, '1772366399123000'],
    [`${TIME}123456`, '1772366399123456'],
    [`${TIME}123456789`, '1772366399123456'],
    [`${TIME}.5`, '1772366399500000'],
    [`"${TIME}.1234569999"`, '1772366399123456'],
    [`${TIME}.123456`, '1772366399123456'],
    ['"2026-03-01"', '1772323200000000'],
    ['"2026-03-01T11:00"', '1772362800000000'],
    ['"2026-03-01 11:00:01Z"', '1772362801000000'],
    ['"2026-03-01T11:00:00."', '1772362800000000'],
    ['"2026-03-01T11:00:00.123456789+00:30"', '1772361000123456'],
    ['"2026-03-01T06:00:00-0500"', '1772362800000000'],
    ['null', String(RECORD_TIME * 1000)],
  ].map(([text, timestamp]) => of(event({ timestamp: text }), 'row', `time ${text}`, { timestamp })),
  ...[
    '"10:00"',
    '"now"',
    '"today"',
    '""',
    '" "',
    '"abc"',
    'true',
    '{}',
    '[]',
    '[1772366399]',
    '-1',
    '0',
    '1',
    '177236639',
    '17723663991',
    `${TIME}12`,
    `${TIME}1234`,
    `${TIME}12345678`,
    `${TIME}1234567890`,
    '1.772366399e9',
    `${TIME}e0`,
    `"${TIME}."`,
    `".5"`,
    `"-${TIME}"`,
    `"+${TIME}"`,
    `"0x69A424BF"`,
    `"${TIME} "`,
    `" ${TIME}"`,
    `"${TIME}s"`,
    `"${TIME},5"`,
    '"2026-03"',
    '"2026-3-1"',
    '"2026-03-01T"',
    '"2026-03-01T11"',
    '"2026-03-01T11:0"',
    '"2026-03-01T11:00:0"',
    '"2026-03-01T24:00:00Z"',
    '"2026-03-01T11:60:00Z"',
    '"2026-03-01T11:00:60Z"',
    '"2026-02-29T11:00:00Z"',
    '"2026-02-30"',
    '"2026-13-01"',
    '"2026-00-10"',
    '"2026-01-00"',
    '"0000-01-01"',
    '"2026-03-01T11:00:00.1234567890Z"',
    '"2026-03-01T11:00:00,5Z"',
    '"2026-03-01t11:00:00Z"',
    '"2026-03-01T11:00:00z"',
    '"2026-03-01T11:00:00 Z"',
    '"2026-03-01T11:00:00+1"',
    '"2026-03-01T11:00:00+01"',
    '"2026-03-01T11:00:00+24:00"',
    '"2026-03-01T11:00:00+01:60"',
    '"2026-03-01T11:00:00 UTC"',
    '"2026-03-01T11:00:00Z[Europe/Berlin]"',
    '"20260301T110000Z"',
    '"2026/03/01 11:00:00"',
    '"01.03.2026"',
    '"03/01/2026"',
    '"Sun, 01 Mar 2026 11:00:00 GMT"',
    '"Mar  1 11:00:00"',
    '"1 March 2026"',
    '"2026-W09-7"',
    '"2026-060"',
    '"12026-03-01"',
    '"２０２６-03-01"',
    '"2026-03-01T11:00:00\\u0000"',
    '"2026-03-01\\nT11:00"',
  ].map((text) => of(event({ timestamp: text }), 'bad_timestamp', `time ${text}`)),
  ...[
    '"1970-01-01"',
    '"9999-12-31"',
    '"2026-03-01T13:00:00.000001Z"',
    '"2025-12-01T11:59:59.999999Z"',
    '0000000000',
    '9999999999',
    '9999999999999999999',
  ].map((text) =>
    of(event({ timestamp: text.startsWith('0') ? `"${text}"` : text }), 'timestamp_out_of_range', `time ${text}`),
  ),
  of(event({ timestamp: '"2026-03-01T13:00:00Z"' }), 'row', 'an hour ahead'),
  of(event({ timestamp: '"2025-12-01T12:00:00Z"' }), 'row', 'as old as the retention'),
  of(
    { value: Buffer.from(event({ timestamp: undefined })), time: -1 },
    'bad_timestamp',
    'no time, and the record has none',
  ),
  of(
    { value: Buffer.from(event({ timestamp: 'null' })), time: -1 },
    'bad_timestamp',
    'null for a time, and the record has none',
  ),
  of({ value: Buffer.from(event()), time: -1 }, 'row', 'a record without a time'),
  of({ value: Buffer.from(event({ timestamp: undefined })), time: EVALUATED_AT }, 'row', "the record's time", {
    timestamp: String(EVALUATED_AT * 1000),
  }),
  ...[0, 1_772_366_399_123_456, 10_000_000_000_000, Number.MAX_SAFE_INTEGER].map((time) =>
    of(
      { value: Buffer.from(event({ timestamp: undefined })), time },
      'timestamp_out_of_range',
      `a record's time of ${time}`,
    ),
  ),
];

const sizeOf = (message: Content): number =>
  typeof message === 'string' || message instanceof Uint8Array ? message.length : (message.value?.length ?? 0);

const CASES = [...SHAPES, ...CONTENTS, ...TIMES];

describe('hostile messages', () => {
  let engine: TestClickHouse;
  let world: World;
  beforeAll(async () => {
    engine = await openTestClickHouse();
    world = createWorld(engine.clickhouse);
  });
  afterAll(async () => engine.close());

  /** What differs from the oracle, and from what is written beside the case; empty = nothing. */
  async function faults(source: SourceName, cases: readonly Case[]): Promise<object[]> {
    const contents = cases.map((c) => c.message);
    const { actual: stored, expected } = await world.store(source, contents);
    const wrong = differences(stored, expected, contents);
    if (source !== SOURCE) return wrong;
    for (const [offset, { name, outcome, row = {} }] of cases.entries()) {
      const actual = stored.get(offset);
      const is = actual === undefined ? 'skipped' : (actual.reason ?? 'row');
      if (is !== outcome) wrong.push({ name, is, must: outcome });
      for (const [column, must] of Object.entries(row))
        if (actual?.row?.[column] !== must) wrong.push({ name, column, is: actual?.row?.[column], must });
    }
    return wrong;
  }

  test.each(CASES)('$name: $outcome', async (hostile) => {
    expect(await faults(SOURCE, [hostile])).toEqual([]);
  });

  const good = (source: SourceName, i: number): Case =>
    of(eventWith(source, { id: `"good ${i}"` }), 'row', 'a good one', { id: `good ${i}` });

  test.each(sources.map((s) => s.name))('%s: all of them, each between good ones, in one batch', async (source) => {
    // the large ones once: they take seconds
    const cases = CASES.filter((c) => source === SOURCE || sizeOf(c.message) < 100_000);
    expect(
      await faults(
        source,
        cases.flatMap((hostile, i) => [good(source, i), hostile]).concat(good(source, cases.length)),
      ),
    ).toEqual([]);
  });
});
