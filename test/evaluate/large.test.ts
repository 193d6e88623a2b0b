import { describe, expect, test } from 'vitest';
import { filled, superlinear } from '../harness/doubling.ts';
import { eventWith } from './messages.ts';
import { evaluated } from './outcomes.ts';

// Guarantee: no event of 5 MB, whatever it holds, takes more than 100 ms, and the time grows with its bytes alone.

const SIZE = 5 * 1024 * 1024;
const MOST_MS = 100;

type Unit = string | ((i: number) => string);
const run = (i: number): string =>
  Array.from({ length: 20 }, (_, k) => String.fromCharCode(97 + ((i * 7919 + k * k * 31) % 26))).join('');
const [head, tail] = ['{"id":"x","project":"p","timestamp":1772366399123456,"a":', '}'];
const atUrl = eventWith('edge_logs', { 'metadata.request.url': '"@"' }).split('@') as [string, string];
const atPath = eventWith('edge_logs', { 'metadata.request.path': '"@"' }).split('@') as [string, string];
const atStatus = eventWith('edge_logs', { 'metadata.response.status_code': '@' }).split('@') as [string, string];
const atId = eventWith('edge_logs', { id: '"@"' }).split('@') as [string, string];

/** What stands before, what is repeated, what stands behind. */
const CASES: readonly (readonly [name: string, before: string, unit: Unit, behind: string])[] = [
  ['letters', `${head}"`, 'x', `"${tail}`],
  ['escapes', `${head}"`, '\\u0000', `"${tail}`],
  ['backslashes', `${head}"`, '\\\\', `"${tail}`],
  ['lone surrogates', `${head}"`, '\\ud800', `"${tail}`],
  ['characters of two bytes', `${head}"`, 'é', `"${tail}`],
  ['characters of four bytes', `${head}"`, '😀', `"${tail}`],
  ['a million short strings', `${head}[`, '"ab",', `1]${tail}`],
  ['empty strings', `${head}[`, '"",', `1]${tail}`],
  ['digits', head, '7', tail],
  ['numbers', `${head}[`, '1.5e-3,', `1]${tail}`],
  ['white space', head, ' \n', `1${tail}`],
  ['words', `${head}[`, 'null,', `1]${tail}`],
  ['keys', `${head}{`, '"a":1,', `"b":2}${tail}`],
  ['keys that differ', `${head}{`, (i) => `"${i}":1,`, `"b":2}${tail}`],
  ['hot keys over and over', '{', '"id":1,"timestamp":2,', '"project":"p"}'],
  ['escaped keys at a hot place', '{', '"\\u0061":1,', '"project":"p"}'],
  ['escaped hot keys', '{', '"\\u0069d":1,', '"project":"p"}'],
  ['a key of escapes', '{"', '\\u0061', '":1,"project":"p"}'],
  ['empty objects', `${head}[`, '{},', `1]${tail}`],
  ['lists 500 deep', `${head}[`, `${'['.repeat(500)}${']'.repeat(500)},`, `1]${tail}`],
  ['lists that never end', head, '[', tail],
  ['objects that never end', head, '{"a":', tail],
  ['a string that never ends', `${head}"`, 'x', tail],
  ['quotes', '{', '"', '}'],
  ['commas', '{', ',', '}'],
  ['a list of objects at a hot place', '{"project":"p","metadata":[', '{"request":[]},', '{}]}'],
  ['an id of letters', atId[0], 'x', atId[1]],
  ['an id of escapes', atId[0], '\\u0041', atId[1]],
  ['an id of lone surrogates', atId[0], '\\udfff', atId[1]],
  ['a url of slashes', atUrl[0], 'a/', atUrl[1]],
  ['a url of escapes', atUrl[0], '\\u0041', atUrl[1]],
  ['a url of letters', atUrl[0], 'z', atUrl[1]],
  ['a url of references', atUrl[0], (i) => `${run(i)}/`, atUrl[1]],
  ['a url of runs of 19', atUrl[0], 'abcdefghijklmnopqrs/', atUrl[1]],
  ['a path of slashes', atPath[0], '/', atPath[1]],
  ['a path of slashes and letters', atPath[0], '/r', atPath[1]],
  ['a path of near marks of four bytes', atPath[0], '/rea', atPath[1]],
  ['a path of near marks', atPath[0], '/storag', atPath[1]],
  ['a path of marks', atPath[0], '/realtime', atPath[1]],
  ['a status of digits', atStatus[0], '1', atStatus[1]],
  ['a status of digits that is no number', `${atStatus[0]}"`, '1', `x"${atStatus[1]}`],
  ['a status of a point and digits', `${atStatus[0]}1.`, '0', atStatus[1]],
  ['a timestamp of digits', '{"project":"p","timestamp":"', '1', '"}'],
  ['a timestamp of blanks', '{"project":"p","timestamp":"', ' ', '"}'],
];

/** CPU of this process, the least of five, milliseconds. */
async function cpuMs(work: () => Promise<unknown>): Promise<number> {
  let least = Infinity;
  for (let again = 0; again < 5 && (again < 2 || least > MOST_MS); again++) {
    const from = process.cpuUsage();
    await work();
    const { user, system } = process.cpuUsage(from);
    least = Math.min(least, (user + system) / 1000);
  }
  return least;
}

describe('5 MB of', () => {
  test.each(CASES)(
    '%s',
    async (_name, before, unit, behind) => {
      const event = Buffer.from(filled(SIZE, before, unit, behind));
      expect(await cpuMs(() => evaluated('edge_logs', 't', [event]))).toBeLessThan(MOST_MS);
    },
    60_000,
  );
});

test('the time grows with the bytes alone', async () => {
  for (const [name, before, unit, behind] of CASES)
    expect(
      await superlinear(
        (bytes) => [Buffer.from(filled(bytes, before, unit, behind))],
        (events) => evaluated('edge_logs', 't', events),
      ),
      name,
    ).toBeUndefined();
}, 300_000);
