import { describe, expect, test } from 'vitest';
import { createPopulation } from './population.ts';
import { createRandom } from './random.ts';
import { drawAddress, urlShapes, type Address, type UrlShape } from './urls.ts';

const population = createPopulation(11, 50, 5);
const url = ({ host, path, search }: Address): string => `https://${host}${path}${search}`;
const draw = (shape: UrlShape, count = 300): { ref: string; address: Address; text: string }[] => {
  const random = createRandom(12);
  return Array.from({ length: count }, () => {
    const project = population.drawProject(random);
    const address = drawAddress(shape, project, population, random);
    return { ref: project.ref, address, text: url(address) };
  });
};

/** The distinct windows of 20 lower-case letters, by the definition. */
function windowsOf(text: string): Set<string> {
  const found = new Set<string>();
  for (let i = 0; i + 20 <= text.length; i++)
    if (/^[a-z]{20}$/.test(text.slice(i, i + 20))) found.add(text.slice(i, i + 20));
  return found;
}
const refs = new Set(Array.from({ length: population.projectCount }, (_, rank) => population.project(rank).ref));
const foreign = (text: string, own: string): string[] => [...windowsOf(text)].filter((w) => refs.has(w) && w !== own);

describe.each(urlShapes)('%s', (shape) => {
  test('is a URL that needs no escaping in JSON', () => {
    for (const { text, address } of draw(shape)) {
      expect(new URL(text).pathname).toBe(address.path);
      expect(JSON.stringify(text)).toBe(`"${text}"`);
    }
  });
});

test('platform URLs have one reference and reach all five families', () => {
  const drawn = draw('platform', 2000);
  for (const { ref, text } of drawn) expect([...windowsOf(text)]).toEqual([ref]);
  for (const family of ['rest', 'auth', 'storage', 'realtime', 'functions'])
    expect(drawn.some(({ address }) => address.path.startsWith(`/${family}/`))).toBe(true);
});

test('custom domains have no reference', () => {
  for (const { text } of draw('custom_domain')) expect(windowsOf(text).size).toBe(0);
});

test('references of others stand in object names and inside longer runs of letters', () => {
  expect(draw('foreign_reference').some(({ text, ref }) => foreign(text, ref).length === 1)).toBe(true);
  for (const { text, address } of draw('long_letters')) {
    expect(address.path).toMatch(/[a-z]{21,}$/);
    expect([...windowsOf(text)].filter((w) => refs.has(w)).length).toBeGreaterThan(0);
  }
});

test('a percent-encoded first letter hides a reference in the path, not in the query string', () => {
  for (const { address } of draw('percent_encoded')) {
    expect(address.path).toContain('%');
    expect([...windowsOf(address.path)].filter((w) => refs.has(w))).toEqual([]);
    expect(refs.has([...windowsOf(address.search)][0]!)).toBe(true);
    expect(decodeURIComponent(address.path)).toContain([...windowsOf(address.search)][0]!);
  }
});

test('upper case hides references', () => {
  const drawn = draw('upper_case');
  for (const { address } of drawn) expect(address.path).toMatch(/\/[A-Z]{20}\//);
  expect(drawn.some(({ text }) => windowsOf(text).size === 0)).toBe(true);
  expect(drawn.some(({ text }) => windowsOf(text).size === 1)).toBe(true);
});

test('the same reference twice is one window', () => {
  for (const { text, ref } of draw('same_reference_twice')) {
    expect(text.split(ref).length - 1).toBeGreaterThan(1);
    expect([...windowsOf(text)]).toEqual([ref]);
  }
});

test('one path belongs to several families', () => {
  const drawn = draw('several_families');
  for (const { address } of drawn)
    for (const family of ['/rest', '/storage', '/auth']) expect(address.path).toContain(family);
  expect(new Set(drawn.map(({ address }) => address.path.includes('/realtime'))).size).toBe(2);
});

test('the window limit is met from both sides, and passed by far', () => {
  expect(new Set(draw('window_limit').map(({ text }) => windowsOf(text).size))).toEqual(new Set([62, 63, 64, 65, 66]));
  for (const { text } of draw('many_windows', 30)) expect(windowsOf(text).size).toBeGreaterThan(200);
});
