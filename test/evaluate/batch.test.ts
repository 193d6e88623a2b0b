import { expect, test } from 'vitest';
import { createAvroDecoder } from '../../services/ingest/avro/decoder.ts';
import { readKnownSchemas } from '../../services/ingest/avro/schemas.ts';
import { evaluateBatch, type EvaluatedBatch } from '../../services/ingest/evaluate/evaluate.ts';
import { rawInsert } from '../../services/ingest/evaluate/raw-rows.ts';
import { RowBinaryReader } from '../harness/row-binary-reader.ts';
import { eventWith } from './messages.ts';
import { outcomesOf, recordsOf, RULES, type Content } from './outcomes.ts';

const avro = createAvroDecoder('auth_logs', readKnownSchemas(undefined));
const evaluate = (contents: readonly Content[], without?: ReadonlySet<number>): Promise<EvaluatedBatch> =>
  evaluateBatch(
    'auth_logs',
    { topic: 't', partition: 0, incarnation: 0, batchLast: contents.length - 1 },
    RULES,
    recordsOf(contents),
    avro,
    without,
  );

/** Hex of what is inserted: rows, then dead letters. */
function bytesOf({ rows, deadLetters }: EvaluatedBatch): string {
  const pieces = Array.from(rawInsert([rows]).pieces, (piece) => Buffer.from(piece));
  return Buffer.concat([...pieces, ...deadLetters]).toString('hex');
}

const at = (timestamp: string): string => eventWith('auth_logs', { timestamp });
const BATCH: readonly Content[] = [
  at('1772366399123456'),
  'x',
  at('1772366300000000'),
  { value: null },
  '{',
  at('1772366399999999'),
  '{"a":1}',
  { value: null },
];

test('a batch says which offsets are rows and which are dead letters, why, and the least time of the rows', async () => {
  const batch = await evaluate(BATCH);
  expect(batch).toMatchObject({
    rowOffsets: [0, 2, 5],
    deadOffsets: [1, 4, 6],
    minTimestamp: 1_772_366_300_000_000,
  });
  expect([...batch.reasons]).toEqual([
    ['not_an_event', 1],
    ['malformed_json', 1],
    ['missing_project', 1],
  ]);
  // rows in the order of their times
  expect([...outcomesOf('auth_logs', batch).keys()]).toEqual([2, 0, 5, 1, 4, 6]);
});

test('what is stored already is left out of rows, dead letters, times and reasons', async () => {
  const batch = await evaluate(BATCH, new Set([0, 4, 5]));
  expect(batch).toMatchObject({
    rowOffsets: [2],
    deadOffsets: [1, 6],
    minTimestamp: 1_772_366_300_000_000,
  });
  expect([...batch.reasons.keys()]).toEqual(['not_an_event', 'missing_project']);
  expect([...outcomesOf('auth_logs', batch).keys()]).toEqual([2, 1, 6]);
  expect(await evaluate(BATCH, new Set([0, 2, 5]))).toMatchObject({
    rows: { order: [] },
    rowOffsets: [],
    minTimestamp: undefined,
  });
});

test('rows stay as they are while later batches are evaluated, and the same batch gives the same bytes', async () => {
  const first = await evaluate(BATCH);
  const copies = bytesOf(first);
  for (let again = 0; again < 400; again++)
    await evaluate([eventWith('auth_logs', { id: `"${'x'.repeat(10_000)}"` }), '{']);
  expect(bytesOf(first)).toEqual(copies);
  expect(bytesOf(await evaluate(BATCH))).toEqual(copies);
});

test('many events give pieces of about a megabyte', async () => {
  const batch = await evaluate(
    Array.from({ length: 3_000 }, () => eventWith('auth_logs', { a: `"${'x'.repeat(1_000)}"` })),
  );
  expect(batch.rowOffsets).toHaveLength(3_000);
  const sizes = Array.from(rawInsert([batch.rows]).pieces, ({ length }) => length);
  expect(sizes.length).toBeGreaterThan(2);
  expect(Math.max(...sizes)).toBeLessThanOrEqual(1024 * 1024);
  expect(outcomesOf('auth_logs', batch).size).toBe(3_000);
});

test.each([
  [2 ** 63, 2n ** 63n - 1n],
  [Number.MAX_SAFE_INTEGER + 1, 2n ** 53n],
  [-(2 ** 63), -(2n ** 63n)],
  [-1, -1n],
  [0, 0n],
  [2 ** 32, 2n ** 32n],
])("a record's time of %d is kept as %d", async (time, kept) => {
  const [piece] = (await evaluate([{ value: Buffer.from('x'), time }])).deadLetters;
  const letter = new RowBinaryReader([piece!]);
  letter.text();
  letter.text();
  letter.bytes(4 + 4 + 8 + 8 + 8 + 2);
  expect(letter.int64()).toBe(kept);
});

test('large batches are evaluated in turns: others run between, and one batch after the other', async () => {
  const long = 'x'.repeat(4_000);
  const contents = (of: number): Content[] =>
    Array.from({ length: 2_000 }, (_, i) =>
      i % 7 === 0 ? `${of}${long}` : eventWith('auth_logs', { id: `${of}-${i}` }),
    );
  const argumentsOf = (of: number): Parameters<typeof evaluateBatch> => [
    'auth_logs',
    { topic: 't', partition: of, incarnation: 0, batchLast: 1_999 },
    RULES,
    recordsOf(contents(of)),
    avro,
  ];
  let isOver = false;
  let turns = 0;
  const count = (): void => {
    turns++;
    if (!isOver) setImmediate(count);
  };
  count();
  const doneAt: number[] = [];
  const batches = await Promise.all(
    [1, 2].map(async (of) => {
      const batch = await evaluateBatch(...argumentsOf(of));
      doneAt.push(turns);
      return batch;
    }),
  );
  isOver = true;
  expect(doneAt[0]! / doneAt[1]!).toBeLessThan(0.7);
  const bytes = recordsOf(contents(1)).reduce((sum, { value }) => sum + value!.length, 0);
  expect(turns).toBeGreaterThan(bytes / (16 * 1024));
  const alone = [await evaluateBatch(...argumentsOf(1)), await evaluateBatch(...argumentsOf(2))];
  expect(batches.map(bytesOf)).toEqual(alone.map(bytesOf));
});

test('a value of which only the beginning is there is too large, even where that would be an event', async () => {
  const value = Buffer.from(BATCH[0] as string);
  const batch = await evaluate([
    { value, isCut: true },
    { value: Buffer.from('{'), isCut: true },
    { value, isCut: false },
  ]);
  expect([batch.rowOffsets, [...batch.reasons]]).toEqual([[2], [['too_large', 2]]]);
});

test('keys and headers of dead letters count too', async () => {
  const value = Buffer.from(' ');
  const header = ['name', Buffer.alloc(10)] as const;
  for (const beside of [
    { key: Buffer.alloc(20_000), headers: [] },
    { key: null, headers: Array.from({ length: 250 }, () => header) },
  ]) {
    let isOver = false;
    let turns = 0;
    const count = (): void => {
      turns++;
      if (!isOver) setImmediate(count);
    };
    count();
    const letters = await evaluate(Array.from({ length: 100 }, () => ({ value, ...beside })));
    isOver = true;
    expect(letters.deadOffsets).toHaveLength(100);
    expect(turns).toBeGreaterThanOrEqual(99);
  }
});

test('a small batch does not wait for large ones', async () => {
  const place = { topic: 't', partition: 0, incarnation: 0, batchLast: 0 };
  const large = recordsOf(Array.from({ length: 20 }, () => 'x'.repeat(100_000)));
  const order: string[] = [];
  const evaluated = async (name: string, records: typeof large): Promise<void> => {
    await evaluateBatch('auth_logs', place, RULES, records, avro);
    order.push(name);
  };
  await Promise.all([
    evaluated('large', large),
    evaluated('another large', large),
    evaluated('small', recordsOf([BATCH[0]!])),
  ]);
  expect(order).toEqual(['small', 'large', 'another large']);
});

test('a batch that cannot be evaluated does not keep the next one', async () => {
  const place = { topic: 't', partition: 0, incarnation: 0, batchLast: 0 };
  const large = recordsOf(Array.from({ length: 20 }, () => 'x'.repeat(100_000)));
  const freed = Object.defineProperty({ length: 1 }, '0', {
    get: () => {
      throw new Error('freed');
    },
  });
  const broken = { ...large[0]!, offset: 20, value: freed as Buffer };
  const first = evaluateBatch('auth_logs', place, RULES, [...large, broken], avro);
  const second = evaluateBatch('auth_logs', place, RULES, large, avro);
  await expect(first).rejects.toThrow('freed');
  expect((await second).deadOffsets).toHaveLength(20);
});
