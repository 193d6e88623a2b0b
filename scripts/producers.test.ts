import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { parse } from 'yaml';
import { findSource, sources } from '../common/sources.ts';

const page = readFileSync(new URL('../docs/producers.md', import.meta.url), 'utf8');
const sinks = [...page.matchAll(/^```yaml\n([\s\S]*?)^```/gm)]
  .map(([, yaml]) => (parse(yaml ?? '') as { sinks: Record<string, Record<string, unknown>> }).sinks)
  .flatMap((block) => Object.values(block));

it('docs/producers.md says of every source where its project is', () => {
  const rows = [...page.matchAll(/^\| `(\w+)` \| [^|]+ \| `([\w.]+)` \|$/gm)].map(([, topic, project]) => [
    topic,
    project,
  ]);
  expect(rows).toEqual(sources.map(({ name, project }) => [name, project]));
});

it("docs/producers.md has Vector's kafka sink for a source, with its topic and the place of its project", () => {
  const [kafka] = sinks.filter(({ type }) => type === 'kafka');
  expect(kafka?.['key_field']).toBe(findSource(String(kafka?.['topic']))?.project);
});

it("docs/producers.md has Vector's http sink with an address that push serves", () => {
  const [http] = sinks.filter(({ type }) => type === 'http');
  const { pathname, searchParams } = new URL(String(http?.['uri']));
  expect(pathname).toBe('/api/logs');
  expect(findSource(searchParams.get('source_name') ?? '')).toBeDefined();
});
