import { expect, test, vi } from 'vitest';
import type { Column } from '../definition/definition.ts';
import { layoutOf } from './formats.ts';
import { convertBody, convertBytes, renderBody, renderBytes, type Shape } from './render.ts';

const columns = ['a', 'b'].map((name): Column => ({
  name,
  from: name,
  description: '',
  nullable: true,
  render: 'json',
}));
const META = [
  { name: 'a', type: 'String' },
  { name: 'b', type: 'Nullable(String)' },
];
const shapeOf = (maxRows: number): Shape => ({ columns, maxRows });
/** A result as ClickHouse prints it. */
const resultOf = (rows: readonly (readonly unknown[])[]): Buffer =>
  Buffer.from(`{"meta":${JSON.stringify(META)},\n"data":\n${JSON.stringify(rows)},\n"rows":${rows.length}}\n`);

test('a row ends at its own bracket, whatever quotes, backslashes and brackets its texts have', async () => {
  const texts = ['"', '\\', '\\"', '\\\\"', ']', '],[', '"]', '\\],"data":[', '[', '{"a":"]"}', ''];
  const rows = texts.map((text) => [text, texts.toReversed()]);
  const expected = { result: rows.map(([a, b]) => ({ a, b })) };
  const { body, truncated } = await renderBody(shapeOf(1000), resultOf(rows));
  expect([JSON.parse(String(body)), truncated]).toEqual([expected, false]);
});

test('rows beyond max rows are cut, and only then the result is truncated', async () => {
  for (const [count, truncated] of [
    [0, false],
    [2, false],
    [3, false],
    [4, true],
  ] as const) {
    const rows = Array.from({ length: count }, (_, i) => [i, null]);
    const rendered = await renderBody(shapeOf(3), resultOf(rows));
    const result = rows.slice(0, 3).map(([a, b]) => ({ a, b }));
    expect([JSON.parse(String(rendered.body)), rendered.truncated]).toEqual([{ result }, truncated]);
    expect(renderBytes(shapeOf(3), resultOf(rows))).toMatchObject({ truncated, etag: rendered.etag });
  }
});

test('a body has the same bytes whether it is rendered at once or in a thread, also where it outgrows its memory', async () => {
  // a long name makes the body many times as large as the result
  const name = 'n'.repeat(1_000);
  const shape: Shape = { maxRows: 10_000, columns: [{ ...columns[0]!, name }] };
  const result = resultOf(Array.from({ length: 2_000 }, (_, i) => [`é ${i}`, null]));
  const atOnce = await renderBody(shape, Buffer.from(result));
  const inThread = renderBytes(shape, result);
  expect(inThread.body.length).toBeGreaterThan(10 * result.length);
  expect(inThread.body.toString() === atOnce.body).toBe(true);
  expect(inThread.etag).toBe(atOnce.etag);
});

test('a short body of a large result keeps no more than twice its bytes', () => {
  const result = resultOf([['x', 'y'.repeat(4 * 1024 * 1024)]]);
  const { body } = renderBytes({ columns: columns.slice(0, 1), maxRows: 1 }, result);
  expect([body.toString(), body.buffer.byteLength <= 2 * body.length]).toEqual(['{"result":[{"a":"x"}]}', true]);
});

test('a date has no zone, and decimals only where they are not zero', async () => {
  const shape: Shape = { maxRows: 10, columns: columns.map((c) => ({ ...c, render: 'utc' })) };
  const { body } = await renderBody(
    shape,
    resultOf([
      ['2026-03-01 09:00:00', '2026-03-01 09:00:00.000000'],
      ['2026-03-01 09:00:00.120000', null],
    ]),
  );
  expect(JSON.parse(String(body)).result).toEqual([
    { a: '2026-03-01T09:00:00', b: '2026-03-01T09:00:00' },
    { a: '2026-03-01T09:00:00.120000', b: null },
  ]);
});

test('a field of CSV is quoted where it has a separator, a quote or either line end', async () => {
  const { body } = await renderBody(
    shapeOf(10),
    resultOf([
      ['a,b', 'say "x"'],
      ['one\rtwo', 'one\ntwo'],
      [null, 12],
    ]),
  );
  expect((await convertBody(String(body), layoutOf('csv', columns))).body).toBe(
    'a,b\r\n"a,b","say ""x"""\r\n"one\rtwo","one\ntwo"\r\n,12\r\n',
  );
});

test('a large answer in another form has the bytes of a small one, and is never one string', async () => {
  const texts = ['"', '\\', '\\"', '}', '},{', '"}]}', '{', '€', ''];
  const rows = Array.from({ length: 2_000 }, (_, i) => [texts[i % texts.length], i]);
  const json = await renderBody(shapeOf(1_000), resultOf(rows));
  for (const format of ['csv', 'ndjson'] as const) {
    const layout = layoutOf(format, columns);
    const { body: expected } = await convertBody(String(json.body), layout);
    const small = await renderBody(shapeOf(1_000), resultOf(rows), layout);
    expect([small.body === expected, small.truncated]).toEqual([true, true]);
    const toString = vi.spyOn(Buffer.prototype, 'toString');
    const rendered = renderBytes(shapeOf(1_000), resultOf(rows), layout);
    const converted = convertBytes(Buffer.from(json.body), layout);
    const longest = Math.max(...toString.mock.results.map(({ value }) => String(value).length));
    toString.mockRestore();
    expect([format, longest < 200]).toEqual([format, true]);
    expect(rendered.body.toString() === expected && converted.body.toString() === expected).toBe(true);
    expect([rendered.truncated, rendered.etag, converted.etag]).toEqual([true, small.etag, small.etag]);
  }
  const none = await renderBody(shapeOf(1), resultOf([]));
  expect(String(convertBytes(Buffer.from(none.body), layoutOf('csv', columns)).body)).toBe('a,b\r\n');
});
