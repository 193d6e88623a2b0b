import { globSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import config from '../../vitest.config.ts';
import servers from '../../vitest.servers.config.ts';

// A pattern that no longer matches a file runs nothing and fails nothing. So a renamed file would lose its run on
// another engine, or every run.

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const exclude = ['**/node_modules/**', 'data/**'];
const filesOf = (pattern: string): string[] => globSync(pattern, { cwd: ROOT, exclude });

interface Project {
  readonly test: { readonly name: string; readonly include: readonly string[] };
}
const projects = [config, servers].flatMap(({ test: of }) => of!.projects as unknown as readonly Project[]);

/** A pattern for each alternative of `{a,b}`, and one for each name that `!(a|b)` leaves out. */
function alternatives(pattern: string): string[] {
  const [whole, names] = /!?[({]([^(){}]*)[)}]/.exec(pattern) ?? [];
  if (whole === undefined) return [pattern];
  return names!.split(/[,|]/).flatMap((name) => alternatives(pattern.replace(whole, name)));
}

test('each name that a project runs or leaves out is that of a file or folder', () => {
  expect(alternatives('a/{b,c}/!(d|e).ts')).toEqual(['a/b/d.ts', 'a/b/e.ts', 'a/c/d.ts', 'a/c/e.ts']);
  const patterns = new Set(projects.flatMap((project) => project.test.include).flatMap(alternatives));
  expect(patterns.size).toBeGreaterThan(30);
  expect([...patterns].filter((pattern) => filesOf(pattern).length === 0)).toEqual([]);
});

test('every test file is in a project', () => {
  const run = new Set(projects.flatMap((project) => project.test.include).flatMap(filesOf));
  expect(filesOf('**/*.test.ts').filter((file) => !run.has(file))).toEqual([]);
});
