import { describe, expect, it } from 'vitest';
import { BUILT_IN, readDefinitions } from '../definition/definition-files.ts';
import type { Definition } from '../definition/definition.ts';
import { readNewKey } from './key-table.ts';
import {
  KEYS_TRUSTED_MS,
  assertMayCall,
  assertMaySee,
  createKeyRing,
  hashKey,
  hasScope,
  type Key,
} from './key-ring.ts';

const key = (id: string, more: Partial<Key> = {}): Key => ({
  id,
  name: id,
  hash: hashKey(`secret of ${id}`),
  scopes: ['query'],
  projects: [],
  expiresAt: undefined,
  ...more,
});
const NOW = 1_000_000_000;

describe('the key ring', () => {
  it('knows the first key always, others once they are loaded', () => {
    const ring = createKeyRing(key('first'));
    expect(ring.check('secret of first', NOW)).toMatchObject({ key: { id: 'first' } });
    expect(ring.check('secret of a', NOW)).toBe('unavailable');
    ring.load([key('a')], NOW);
    expect(ring.check('secret of a', NOW)).toMatchObject({ key: { id: 'a' } });
    expect(ring.check('secret of b', NOW)).toBe('unauthorized');
    expect(ring.check('', NOW)).toBe('unauthorized');
  });

  it('forgets a key that the list no longer has', () => {
    const ring = createKeyRing(key('first'));
    ring.load([key('a')], NOW);
    ring.load([], NOW + 1);
    expect(ring.check('secret of a', NOW + 1)).toBe('unauthorized');
  });

  it('compares the whole hash', () => {
    const hash = Buffer.from(hashKey('x'));
    hash[31]! ^= 1;
    const ring = createKeyRing(key('first'));
    ring.load([key('a', { hash })], NOW);
    expect(ring.check('x', NOW)).toBe('unauthorized');
  });

  it('lets a key expire to the millisecond', () => {
    const ring = createKeyRing(key('first'));
    ring.load([key('a', { expiresAt: NOW + 1000 })], NOW);
    expect(ring.check('secret of a', NOW + 999)).toMatchObject({ key: { id: 'a' } });
    expect(ring.check('secret of a', NOW + 1000)).toBe('unauthorized');
  });

  it('trusts a list for an hour, then knows only the first key', () => {
    const ring = createKeyRing(key('first'));
    ring.load([key('a')], NOW);
    expect(ring.check('secret of a', NOW + KEYS_TRUSTED_MS)).toMatchObject({ key: { id: 'a' } });
    expect(ring.check('secret of a', NOW + KEYS_TRUSTED_MS + 1)).toBe('unavailable');
    expect(ring.check('secret of first', NOW + KEYS_TRUSTED_MS + 1)).toMatchObject({ key: { id: 'first' } });
  });
});

describe('what a key may', () => {
  const definitions = readDefinitions([BUILT_IN]);
  const logs = definitions.find('logs.all') as Definition;
  const withoutProject = { ...logs, name: 'without.project' } as Definition;
  delete (withoutProject as { project?: unknown }).project;

  it.each<[string, Key, Definition | undefined, string | undefined]>([
    ['admin, any endpoint', key('k', { scopes: ['admin'] }), logs, undefined],
    ['admin, no endpoint', key('k', { scopes: ['admin'] }), undefined, 'not_found'],
    ['query, any endpoint', key('k'), logs, undefined],
    ['query, no endpoint', key('k'), undefined, 'not_found'],
    ['one endpoint, that', key('k', { scopes: ['query:logs.all'] }), logs, undefined],
    ['one endpoint, another', key('k', { scopes: ['query:usage.api-counts'] }), logs, 'forbidden'],
    ['one endpoint, that with a longer name', key('k', { scopes: ['query:logs'] }), logs, 'forbidden'],
    ['one endpoint, none', key('k', { scopes: ['query:logs.all'] }), undefined, 'forbidden'],
    ['ingest', key('k', { scopes: ['ingest'] }), logs, 'forbidden'],
    ['nothing', key('k', { scopes: [] }), undefined, 'forbidden'],
    ['projects, an endpoint without one', key('k', { projects: ['p'] }), withoutProject, 'forbidden'],
    ['all projects, an endpoint without one', key('k'), withoutProject, undefined],
  ])('%s', (_, k, definition, code) => {
    const call = expect(() => assertMayCall(k, definition));
    if (code === undefined) call.not.toThrow();
    else call.toThrow(expect.objectContaining({ code }));
  });

  it('sees exactly its projects', () => {
    const limited = key('k', { projects: ['p', 'q'] });
    for (const values of [['P'], ['p '], ['p|q'], ['.'], ['p', 'r'], ['ｐ']])
      expect(() => assertMaySee(limited, logs, values)).toThrow(expect.objectContaining({ code: 'forbidden' }));
    for (const values of [['p'], [], ['']]) expect(() => assertMaySee(limited, logs, values)).not.toThrow();
    expect(() => assertMaySee(key('k'), logs, ['anything'])).not.toThrow();
  });

  it('admin has every scope, others their own', () => {
    expect(hasScope(key('k', { scopes: ['admin'] }), 'ingest')).toBe(true);
    expect(hasScope(key('k', { scopes: ['query:logs.all'] }), 'query')).toBe(false);
  });
});

describe('readNewKey', () => {
  it('takes what the contract says, and nothing else', () => {
    expect(
      readNewKey(
        { name: ' n ', scopes: ['query', 'query', 'ingest'], projects: ['a_B-1'], expires_at: '2027-01-01T00:00:00Z' },
        NOW,
      ),
    ).toEqual({
      key: { name: 'n', scopes: ['query', 'ingest'], projects: ['a_B-1'], expiresAt: Date.UTC(2027, 0, 1) },
    });
    expect(readNewKey({ name: 'n', scopes: ['query:logs.all'], expires_at: null }, NOW)).toEqual({
      key: { name: 'n', scopes: ['query:logs.all'], projects: [], expiresAt: undefined },
    });
  });
  it.each<[unknown, string[]]>([
    [null, ['name', 'scopes']],
    [5, ['name', 'scopes']],
    [{ name: 5, scopes: 'query' }, ['name', 'scopes']],
    [{ name: ' ', scopes: ['query'] }, ['name']],
    [{ name: 'n', scopes: ['QUERY'] }, ['scopes']],
    [{ name: 'n', scopes: ['query', 5] }, ['scopes']],
    [{ name: 'n', scopes: 5, projects: 'p' }, ['scopes', 'projects']],
    [{ name: 'n', scopes: ['query'], projects: ['a', 'b c', ''] }, ['projects', 'projects']],
    [{ name: 'n', scopes: ['query'], expires_at: 5 }, ['expires_at']],
    [{ name: 'n', scopes: ['admin'], projects: ['a'] }, ['projects']],
    [{ name: 'n'.repeat(201), scopes: ['query'], more: 1 }, ['more', 'name']],
    [{ name: 'a\0b', scopes: ['query'] }, ['name']],
    [{ name: '\u001b[2J', scopes: ['query'] }, ['name']],
    [{ name: '\ud800', scopes: ['query'] }, ['name']],
    [JSON.parse('{"__proto__":{"name":"n","scopes":["query"]}}'), ['__proto__', 'name', 'scopes']],
  ])('%j', (given, wrong) => {
    const read = readNewKey(given, NOW);
    expect('mistakes' in read ? read.mistakes.map((m) => m.parameter) : []).toEqual(wrong);
  });
});
