import { expect, test, vi } from 'vitest';
import type { Column } from '../definition/definition.ts';
import { convertBody, etagOf, renderBody, type Shape } from './render.ts';

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

test('a row ends at its own bracket, whatever quotes, backslashes and brackets its texts have', () => {
  const texts = ['"', '\\', '\\"', '\\\\"', ']', '],[', '"]', '\\],"data":[', '[', '{"a":"]"}', ''];
  const rows = texts.map((text) => [text, texts.toReversed()]);
  const expected = { result: rows.map(([a, b]) => ({ a, b })) };
  const { body, truncated } = renderBody(shapeOf(1000), resultOf(rows));
  expect([JSON.parse(String(body)), truncated]).toEqual([expected, false]);
});

test('rows beyond max rows are cut, and only then the result is truncated', () => {
  for (const [count, truncated] of [
    [0, false],
    [2, false],
    [3, false],
    [4, true],
  ] as const) {
    const rows = Array.from({ length: count }, (_, i) => [i, null]);
    const rendered = renderBody(shapeOf(3), resultOf(rows));
    const result = rows.slice(0, 3).map(([a, b]) => ({ a, b }));
    expect([JSON.parse(String(rendered.body)), rendered.truncated]).toEqual([{ result }, truncated]);
  }
});

test('a body may outgrow the memory that its result suggests', () => {
  // a long name makes the body many times as large as the result
  const name = 'n'.repeat(1_000);
  const shape: Shape = { maxRows: 10_000, columns: [{ ...columns[0]!, name }] };
  const texts = Array.from({ length: 2_000 }, (_, i) => `é ${i}`);
  const result = resultOf(texts.map((text) => [text, null]));
  const { body, etag } = renderBody(shape, result);
  expect(body.length).toBeGreaterThan(10 * result.length);
  expect(body.toString()).toBe(JSON.stringify({ result: texts.map((text) => ({ [name]: text })) }));
  expect(etag).toBe(etagOf(body.toString()));
});

test('a short body of a large result keeps no more than twice its bytes', () => {
  const result = resultOf([['x', 'y'.repeat(4 * 1024 * 1024)]]);
  const { body } = renderBody({ columns: columns.slice(0, 1), maxRows: 1 }, result);
  expect([body.toString(), body.buffer.byteLength <= 2 * body.length]).toEqual(['{"result":[{"a":"x"}]}', true]);
});

test('a date has no zone, and decimals only where they are not zero', () => {
  const shape: Shape = { maxRows: 10, columns: columns.map((c) => ({ ...c, render: 'utc' })) };
  const { body } = renderBody(
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

test('a field of CSV is quoted where it has a separator, a quote or either line end', () => {
  const { body } = renderBody(
    shapeOf(10),
    resultOf([
      ['a,b', 'say "x"'],
      ['one\rtwo', 'one\ntwo'],
      [null, 12],
    ]),
  );
  expect(convertBody(body, 'csv', columns).body.toString()).toBe(
    'a,b\r\n"a,b","say ""x"""\r\n"one\rtwo","one\ntwo"\r\n,12\r\n',
  );
});

test('another form has the same bytes whether it is rendered or converted, and is never one string', () => {
  const texts = ['"', '\\', '\\"', '}', '},{', '"}]}', '{', '€', ''];
  const rows = Array.from({ length: 2_000 }, (_, i) => [texts[i % texts.length], i]);
  const json = renderBody(shapeOf(1_000), resultOf(rows));
  const parsed = (JSON.parse(json.body.toString()) as { result: { a: string; b: number }[] }).result;
  const cellOf = (text: string): string => (/["\r\n,]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  for (const [format, expected] of [
    ['csv', `a,b\r\n${parsed.map(({ a, b }) => `${cellOf(a)},${b}\r\n`).join('')}`],
    ['ndjson', parsed.map((row) => `${JSON.stringify(row)}\n`).join('')],
  ] as const) {
    const toString = vi.spyOn(Buffer.prototype, 'toString');
    const rendered = renderBody(shapeOf(1_000), resultOf(rows), format);
    const converted = convertBody(json.body, format, columns);
    const longest = Math.max(...toString.mock.results.map(({ value }) => String(value).length));
    toString.mockRestore();
    expect([format, longest < 200]).toEqual([format, true]);
    expect(rendered.body.toString() === expected && converted.body.toString() === expected).toBe(true);
    expect([rendered.truncated, rendered.etag, converted.etag]).toEqual([true, etagOf(expected), etagOf(expected)]);
  }
  const none = renderBody(shapeOf(1), resultOf([]));
  expect(convertBody(none.body, 'csv', columns).body.toString()).toBe('a,b\r\n');
});
