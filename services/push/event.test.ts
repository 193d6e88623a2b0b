import { readFileSync, readdirSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { findSource, sources, type KnownSource } from '../../common/sources.ts';
import { mayPush, namesAnother, readEvent, type PushedEvent } from './event.ts';

const source = (name: string): KnownSource => findSource(name)!;
const read = (name: string, text: string, maxBytes = 1000): PushedEvent | { mistake: string } =>
  readEvent(text, source(name), maxBytes);
function taken(name: string, text: string): PushedEvent {
  const event = read(name, text);
  if ('mistake' in event) throw new Error(event.mistake);
  return event;
}

describe('an event', () => {
  it('is kept byte for byte, and keyed by its project', () => {
    const text = '{"project":"a","n":12345678901234567890,"n":2}';
    expect(taken('edge_logs', text)).toMatchObject({ project: 'a', value: Buffer.from(text) });
  });

  it.each([
    ['edge_logs', '{"project":"a"}', 'a'],
    ['auth_logs', '{"project":"a","metadata":{"project":"b"}}', 'a'],
    ['deno-relay-logs', '{"project":"x","metadata":{"project_ref":"a"}}', 'a'],
    ['storage.logs.prod.2', '{"metadata":[{"project":"a"},{"project":"b"}]}', 'a'],
    ['edge_logs', '{"project":12}', '12'],
    ['edge_logs', '{"\\u0070roject":"\\u0061"}', 'a'],
    ['edge_logs', '{"metadata":{"request":[{"url":"https://x"}]}}', null],
  ])('of %s names its project: %s', (name, text, project) => {
    expect(taken(name, text).project).toBe(project);
  });

  it.each<[string, string, string]>([
    ['edge_logs', '{"project":"a"', 'is not JSON at byte 14 of 14'],
    ['edge_logs', '{"project":"a', 'is not JSON at byte 13 of 13'],
    ['edge_logs', '{"project":', 'is not JSON at byte 11 of 11'],
    ['edge_logs', '{', 'is not JSON at byte 1 of 1'],
    ['edge_logs', '{"project":NaN,"m":{"a":1', 'is not JSON at byte 11 of 25'],
    ['edge_logs', '{"project":"a"}]', 'is not JSON at byte 15 of 16'],
    ['edge_logs', `{"project":${'['.repeat(512)}`, 'is nested deeper than 512 levels'],
    ['edge_logs', '["a"]', 'is not a JSON object'],
    ['edge_logs', '3', 'is not a JSON object'],
    ['edge_logs', 'tru', 'is not a JSON object'],
    ['edge_logs', `{"project":"a","m":"${'x'.repeat(1000)}"}`, 'is larger than 1000 bytes'],
    ['edge_logs', `{"project":"a","m":"${'ä'.repeat(500)}"}`, 'is larger than 1000 bytes'],
    ...['{}', '{"project":null}', '{"project":""}', '{"project":true}', '{"project":["a"]}', '{"project":{"a":1}}'].map(
      (text) => ['edge_logs', text, 'has no project'] as [string, string, string],
    ),
    ['edge_logs', '{"metadata":{"request":{"url":5}}}', 'has no project'],
    ['auth_logs', '{"metadata":{"request":{"url":"https://x"}}}', 'has no project'],
    ['realtime_logs', '{"project":"a"}', 'has no metadata.project'],
    ['function_logs', '{"metadata":"{\\"project_ref\\":1}"}', 'has no metadata.project_ref'],
    ['edge_logs', `{"project":"${'é'.repeat(129)}"}`, 'has a project of more than 256 bytes'],
    ['edge_logs', `{"project":${'1'.repeat(257)}}`, 'has a project of more than 256 bytes'],
    ['storage_logs', `{"metadata":{"project":"${'a'.repeat(257)}"}}`, 'has a metadata.project of more than 256 bytes'],
    ['edge_logs', `{"project":"a","m":${'['.repeat(512)}${']'.repeat(512)}}`, 'is larger than 1000 bytes'],
    ['edge_logs', `{"project":"a","m":${'['.repeat(600)}}`, 'is nested deeper than 512 levels'],
    ['edge_logs', '{"project":"a","m":NaN}', 'is not JSON at byte 19 of 23'],
    ...['true', '{}', '["2026-01-01"]', '"yesterday"', '""', '-5', '"10:00"', '"2026-02-30"', '17'].map(
      (time) =>
        ['edge_logs', `{"project":"a","timestamp":${time}}`, 'has an invalid timestamp'] as [string, string, string],
    ),
  ])('of %s is refused: %s', (name, text, mistake) => {
    expect(read(name, text)).toEqual({ mistake });
  });

  it('with a timestamp that is one is taken, whatever time it is', () => {
    for (const time of [
      '1700000000',
      '"1700000000123"',
      '1700000000.5',
      '"2026-01-01T00:00:00.123456Z"',
      '"2026-01-01 00:00:00+02:00"',
      'null',
      '"2026\\u002d01-01"',
    ])
      expect(taken('edge_logs', `{"project":"a","timestamp":${time}}`).project).toBe('a');
  });

  it('is refused alike for a project that ingest would refuse too', () => {
    const text = `{"project":"${'a'.repeat(100_000)}","timestamp":"x"}`;
    expect(read('edge_logs', text, 1_000_000)).toEqual({
      mistake: 'has a project of more than 256 bytes',
    });
  });

  it('may name a project of 256 bytes, and nest 512 levels', () => {
    expect(taken('edge_logs', `{"project":"${'é'.repeat(128)}"}`).project).toBe('é'.repeat(128));
    const nested = `{"project":"a","m":${'['.repeat(511)}${']'.repeat(511)}}`;
    expect(read('edge_logs', nested, nested.length)).toMatchObject({ project: 'a' });
  });

  it('is never refused where ingest stores it: every valid example of every source', () => {
    for (const { name } of sources) {
      const folder = new URL(`../../schemas/examples/${name}/`, import.meta.url);
      for (const file of readdirSync(folder).filter((f) => f.endsWith('.json'))) {
        const example = readFileSync(new URL(file, folder), 'utf8').trim();
        expect({ file, ...readEvent(example, source(name), 8 * 1024 * 1024) }).not.toHaveProperty('mistake');
      }
    }
  });
});

describe('a key that is limited to projects', () => {
  const may = (name: string, text: string): boolean => mayPush(['a', '12', '12e1'], taken(name, text));
  it('may push for these only, and the project is the one that it is stored under', () => {
    expect(may('edge_logs', '{"project":"a"}')).toBe(true);
    expect(may('edge_logs', '{"project":"b"}')).toBe(false);
    expect(may('edge_logs', '{"project":"b","project":"a"}')).toBe(false);
    expect(may('realtime_logs', '{"project":"a","metadata":{"project":"b"},"metadata":{"project":"a"}}')).toBe(false);
    expect(may('edge_logs', '{"project":12}')).toBe(true);
    expect(may('edge_logs', '{"project":12e1}')).toBe(true);
    expect(may('edge_logs', '{"project":120}')).toBe(false);
    expect(may('edge_logs', '{"project":"12e1"}')).toBe(true);
  });
  it('may not push an edge event that has a url only', () => {
    expect(may('edge_logs', '{"metadata":{"request":{"url":"https://a.example"}}}')).toBe(false);
  });
  it('and one without a list may push for all', () => {
    expect(mayPush([], taken('edge_logs', '{"metadata":{"request":{"url":"https://a.example"}}}'))).toBe(true);
  });
});

describe('the host of an edge event of a key that is limited to projects', () => {
  const [mine, other] = ['mineabcdefghijklmnop', 'otherabcdefghijklmno'];
  const names = (url: unknown, projects: readonly string[] = [mine]): boolean =>
    namesAnother(projects, taken('edge_logs', JSON.stringify({ project: mine, metadata: [{ request: { url } }] })));

  it.each([
    `https://${other}.supabase.co/rest/v1/x`,
    `https://${other}.supabase.co:443`,
    `${other}.supabase.co:443/rest`,
    `//${other}.x`,
    `https:/${other}.x/y`,
    ` //${other}.x`,
    `\u0001//${other}.x`,
    ` https://${other}.x`,
    `https://user:${other}@x.y/`,
    `https://${mine}@${other}.x/`,
    `https://x${mine}.supabase.co/`,
    `https://${mine}.${other}.co`,
    `https:\\\\${other}.x\\y`,
    `https:\n//${other}.x/`,
    `ht\ttps:/\r/${other}.x/`,
    `\u0001https://${other}.x/`,
    `a.b+c://${other}.x/`,
    `${'A'.repeat(30)}://${other}.x/`,
    `blob:https://${other}.x/`,
    other,
    `https://${'.'.repeat(513)}/`,
  ])('may not name another reference: %s', (url) => {
    expect(names(url)).toBe(true);
  });

  it.each([
    `https://${mine}.supabase.co/rest/v1/x`,
    `https://db.${mine}.supabase.co:5432/`,
    'https://api.example.com/x',
    'http://127.0.0.1:4000',
    `api.example.com:443/${other}`,
    `https://${mine}.supabase.co\n/${other}?${other}#${other}`,
    '',
    '/rest/v1/x',
    `https://${other.toUpperCase()}.x/`,
    7,
    null,
  ])('may be of its own projects, or of none: %s', (url) => {
    expect(names(url)).toBe(false);
  });

  it('is free for a key that is not limited', () => {
    expect(names(`https://${other}.supabase.co/`, [])).toBe(false);
  });
});
