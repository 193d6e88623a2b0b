import { expect, it } from 'vitest';
import { expandedSize, parseAst } from './ast.ts';

/** What EXPLAIN AST prints of a list of expressions, each given as its lines. */
const sizeOf = (...expressions: readonly (readonly string[])[]): number => {
  const root = parseAst(['ExpressionList', ...expressions.flat().map((line) => ` ${line}`)].join('\n'));
  if (root === undefined) throw new Error('not a tree');
  return expandedSize(root);
};
const call = (alias: string, ...args: readonly string[]): string[] => [
  `Function concat (alias ${alias}) (children 1)`,
  ` ExpressionList (children ${args.length})`,
  ...args.map((arg) => `  Identifier ${arg}`),
];

it('counts what aliases of aliases stand for', () => {
  expect(sizeOf(["Literal 'ab' (alias s0)"])).toBe(2);
  // s1 = 2 + 2 x (1 + 1)
  expect(sizeOf(["Literal 'ab' (alias s0)"], call('s1', 's0', 's0'))).toBe(2 + 6);
  expect(sizeOf(["Literal 'ab' (alias s0)"], call('s1', 's0', 's0'), call('s2', 's1', 's1'))).toBe(2 + 6 + 16);
  const doubled = Array.from({ length: 40 }, (_, i) => call(`s${i + 1}`, `s${i}`, `s${i}`));
  expect(sizeOf(["Literal 'ab' (alias s0)"], ...doubled)).toBeGreaterThan(2 ** 40);
});

it('takes a name inside its own expression for a column', () => {
  // once where it is named, once where it is read
  expect(sizeOf(call('message', 'message'))).toBe(1 + 3 + 3);
});

it('bounds nothing by aliases that stand for each other', () => {
  expect(sizeOf(call('a', 'b'), call('b', 'a'))).toBe(Infinity);
  // a second SELECT names the aliases of the first in the other order, and is looked at first
  const turned = Array.from({ length: 17 }, (_, i) => [`Identifier s${i + 1} (alias s${i})`]);
  const doubled = Array.from({ length: 17 }, (_, i) => call(`s${i + 1}`, `s${i}`, `s${i}`));
  expect(sizeOf(...turned, ...doubled)).toBe(Infinity);
});

it('bears any number and depth of aliases', () => {
  const chain = Array.from({ length: 100_000 }, (_, i) => [`Identifier a${i} (alias a${i + 1})`]);
  expect(sizeOf(...chain)).toBeGreaterThan(100_000);
  expect(sizeOf(...chain.toReversed())).toBe(Infinity);
  const from = performance.now();
  expect(sizeOf(...Array.from({ length: 50_000 }, () => ['Identifier b (alias a)', 'Identifier a']))).toBe(
    1 + 50_000 * (2 + 50_000),
  );
  expect(performance.now() - from).toBeLessThan(2_000);
});
