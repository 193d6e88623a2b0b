import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { STALE_MS, WARM_ENTRIES, createCache } from './cache.ts';

const kept = { cacheSeconds: 900, requerySeconds: 300 };

/** A cache of texts. */
function make(limits = { maxEntries: 10_000, maxBytes: 1_000_000 }, random = 0) {
  type Text = Parameters<typeof cache.put>[0];
  const cache = createCache<{
    readonly key: string;
    readonly text: string;
    readonly definition: typeof kept;
    readonly answer: { readonly bytes: number; readonly fetchedAt: number };
  }>(limits, () => random);
  const last = new Map<string, Text>();
  return {
    ...cache,
    put(
      key: string,
      text: string,
      bytes: number,
      definition: typeof kept,
      fetchedAt: number,
      owner?: string,
      at = fetchedAt,
    ) {
      const value = { key, text, definition, answer: { bytes, fetchedAt } };
      last.set(key, value);
      cache.put(value, owner === undefined ? undefined : { owner, at });
    },
    ask(key: string, now: number, owner: string) {
      const found = cache.ask(key, now, owner);
      return found && { value: found.value.text, isFresh: found.isFresh };
    },
    /** of the value that was put last, or of another one with its key */
    grow(key: string, text: string, size: number) {
      const value = last.get(key);
      if (value !== undefined) cache.grow(value.text === text ? value : { ...value, text }, size);
    },
    due: (now: number): string[] => cache.due(now).map(({ text }) => text),
  };
}
const s = (seconds: number): number => 1_000_000_000 + seconds * 1000;

describe('an entry', () => {
  it('is fresh until 900 s, expired until an hour, then gone', () => {
    const cache = make();
    cache.put('k', 'v', 10, kept, s(0), 'o');
    expect(cache.ask('k', s(0), 'o')).toEqual({ value: 'v', isFresh: true });
    expect(cache.ask('k', s(899.999), 'o')?.isFresh).toBe(true);
    expect(cache.ask('k', s(900), 'o')?.isFresh).toBe(false);
    expect(cache.ask('k', s(0) + STALE_MS, 'o')?.isFresh).toBe(false);
    expect(cache.ask('k', s(0) + STALE_MS + 1, 'o')).toBeUndefined();
    expect(cache.size()).toBe(0);
    expect(cache.bytes()).toBe(0);
  });

  it('is not there before it was put', () => {
    expect(make().ask('k', s(0), 'o')).toBeUndefined();
  });

  it('of the future is fetched anew: the clock was set back', () => {
    const cache = make();
    cache.put('k', 'later', 10, kept, s(3600), 'o');
    expect(cache.ask('k', s(0), 'o')?.isFresh).toBe(false);
    cache.put('k', 'now', 10, kept, s(0), 'o');
    expect(cache.ask('k', s(1), 'o')).toEqual({ value: 'now', isFresh: true });
  });

  it('is due from 300 s on while a caller asked within 900 s', () => {
    const cache = make();
    cache.put('k', 'v', 10, kept, s(0), 'o');
    expect(cache.due(s(299.999))).toEqual([]);
    expect(cache.due(s(300))).toEqual(['v']);
    expect(cache.due(s(900))).toEqual(['v']);
    expect(cache.due(s(900.001))).toEqual([]);
  });

  it('stays warm by being asked for, not by being fetched anew', () => {
    const cache = make();
    cache.put('k', 'v0', 10, kept, s(0), 'o');
    for (const at of [300, 600, 900]) {
      expect(cache.due(s(at))).toHaveLength(1);
      cache.put('k', `v${at}`, 10, kept, s(at), undefined);
    }
    expect(cache.due(s(1200))).toEqual([]);
    expect(cache.ask('k', s(1200), 'o')?.isFresh).toBe(true);
    expect(cache.due(s(1200))).toEqual(['v900']);
  });

  it('was asked for when its caller asked, although another process fetched it long before', () => {
    const cache = make();
    cache.put('k', 'of another process', 10, kept, s(0), 'o', s(850));
    cache.put('k', 'own', 10, kept, s(851), undefined);
    expect([cache.due(s(1750)), cache.due(s(1750.001))]).toEqual([['own'], []]);
  });

  it('is not fetched anew where its endpoint does not say so', () => {
    const cache = make();
    cache.put('k', 'v', 10, { cacheSeconds: 900, requerySeconds: 0 }, s(0), 'o');
    expect(cache.due(s(800))).toEqual([]);
  });

  it('takes no warm place where its endpoint does not say so', () => {
    const cache = make();
    cache.put('k', 'v', 10, kept, s(0), 'o');
    for (let i = 0; i < WARM_ENTRIES; i++)
      cache.put(`never${i}`, 'never', 1, { cacheSeconds: 900, requerySeconds: 0 }, s(1), 'o');
    expect(cache.due(s(300))).toEqual(['v']);
  });

  it('waits 30 s after a requery that failed', () => {
    const cache = make();
    cache.put('k', 'v', 10, kept, s(0), 'o');
    cache.failed('k', s(300));
    expect(cache.due(s(329))).toEqual([]);
    expect(cache.due(s(330))).toEqual(['v']);
  });

  it('that is longest overdue comes first, whoever was asked for last: there may not be a slot for all', () => {
    const cache = make();
    for (const [key, at] of [
      ['b', 20],
      ['a', 0],
      ['c', 40],
    ] as const)
      cache.put(key, key, 10, kept, s(at), 'o');
    cache.ask('a', s(100), 'o');
    expect(cache.due(s(400))).toEqual(['a', 'b', 'c']);
  });

  it('that nobody asked for is not kept', () => {
    const cache = make();
    cache.put('k', 'v', 10, kept, s(0), undefined);
    expect(cache.size()).toBe(0);
  });
});

describe('the bounds', () => {
  it('the entry asked for longest ago goes first', () => {
    const cache = make({ maxEntries: 2, maxBytes: 1e6 });
    cache.put('a', 'a', 1, kept, s(0), 'o');
    cache.put('b', 'b', 1, kept, s(1), 'o');
    cache.ask('a', s(2), 'o');
    cache.put('c', 'c', 1, kept, s(3), 'o');
    expect(cache.ask('b', s(4), 'o')).toBeUndefined();
    expect(cache.ask('a', s(4), 'o')?.value).toBe('a');
  });

  it('so it does where the bytes are too many: of a new entry, of a larger value, of a compressed copy', () => {
    const cache = make({ maxEntries: 100, maxBytes: 1_000 });
    const fill = (): void => {
      for (let i = 0; i < 8; i++) cache.put(`k${i}`, `k${i}`, 120, kept, s(i), 'o');
    };
    const there = (): string[] =>
      Array.from({ length: 10 }, (_, i) => `k${i}`).filter((k) => cache.ask(k, s(10), 'o') !== undefined);
    fill();
    cache.put('k9', 'k9', 100, kept, s(9), 'o');
    expect(there()).toEqual(['k1', 'k2', 'k3', 'k4', 'k5', 'k6', 'k7', 'k9']);
    cache.put('k9', 'k9', 300, kept, s(10), undefined);
    expect(there()).toEqual(['k3', 'k4', 'k5', 'k6', 'k7', 'k9']);
    cache.grow('k9', 'k9', 100);
    expect(there()).toEqual(['k4', 'k5', 'k6', 'k7', 'k9']);
    expect(cache.bytes()).toBe(4 * 124 + 404);
  });

  it('a requery does not count as being asked for', () => {
    const cache = make({ maxEntries: 2, maxBytes: 1e6 });
    cache.put('a', 'a', 1, kept, s(0), 'o');
    cache.put('b', 'b', 1, kept, s(1), 'o');
    cache.put('a', 'a2', 1, kept, s(2), undefined);
    cache.put('c', 'c', 1, kept, s(3), 'o');
    expect(cache.ask('a', s(4), 'o')).toBeUndefined();
  });

  it('an answer too large for the cache throws out nothing', () => {
    const cache = make({ maxEntries: 10, maxBytes: 1000 });
    cache.put('a', 'a', 100, kept, s(0), 'o');
    cache.put('b', 'b', 200, kept, s(0), 'o');
    expect(cache.ask('b', s(1), 'o')).toBeUndefined();
    expect(cache.ask('a', s(1), 'o')?.value).toBe('a');
  });

  it('keeps at most 1,000 entries warm: those asked for last', () => {
    const cache = make();
    for (let i = 0; i < 1_005; i++) cache.put(`k${i}`, `k${i}`, 1, kept, s(0), 'o');
    const due = cache.due(s(300));
    expect(due).toHaveLength(1_000);
    expect(due).not.toContain('k0');
    expect(due).toContain('k5');
  });

  it('what is too old to be served is swept', () => {
    const cache = make();
    cache.put('a', 'a', 1, kept, s(0), 'o');
    cache.sweep(s(0) + STALE_MS + 1);
    expect([cache.size(), cache.bytes()]).toEqual([0, 0]);
  });

  it('comes due up to a tenth early, each at its own time', () => {
    const cache = make({ maxEntries: 100, maxBytes: 1e6 }, 1);
    cache.put('k', 'v', 10, kept, s(0), 'o');
    expect(cache.due(s(269))).toEqual([]);
    expect(cache.due(s(270))).toEqual(['v']);
  });

  it('only the value that is there is charged', () => {
    const cache = make();
    cache.put('a', 'a', 1, kept, s(0), 'o');
    cache.grow('a', 'a', 50);
    cache.grow('a', 'another value', 50);
    expect(cache.bytes()).toBe(53);
  });

  it('hold after any sequence of calls', () => {
    const key = fc.constantFrom('a', 'b', 'c', 'd', 'e', 'f');
    const step = fc.oneof(
      fc.record({ do: fc.constant('put' as const), key, size: fc.integer({ min: 0, max: 120 }), asked: fc.boolean() }),
      fc.record({ do: fc.constant('ask' as const), key }),
      fc.record({ do: fc.constant('grow' as const), key, size: fc.integer({ min: 0, max: 120 }) }),
      fc.record({ do: fc.constant('wait' as const), seconds: fc.integer({ min: 1, max: 2000 }) }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 100, size: 'max' }), (steps) => {
        const cache = make({ maxEntries: 4, maxBytes: 400 });
        const fetchedAt = new Map<string, number>();
        let now = s(0);
        for (const step_ of steps) {
          if (step_.do === 'put') {
            cache.put(step_.key, step_.key, step_.size, kept, now, step_.asked ? 'o' : undefined);
            fetchedAt.set(step_.key, now);
          } else if (step_.do === 'ask') {
            const found = cache.ask(step_.key, now, 'o');
            // what is found is what was put last
            const age = now - (fetchedAt.get(step_.key) ?? Number.NEGATIVE_INFINITY);
            if (found !== undefined && (age < 900_000 !== found.isFresh || age > STALE_MS)) return false;
          } else if (step_.do === 'grow') cache.grow(step_.key, step_.key, step_.size);
          else now += step_.seconds * 1000;
          expect(cache.size()).toBeLessThanOrEqual(4);
          expect(cache.bytes()).toBeLessThanOrEqual(400);
          expect(cache.bytes()).toBeGreaterThanOrEqual(0);
          expect(cache.size() === 0 && cache.bytes() !== 0).toBe(false);
        }
        return true;
      }),
    );
  });
});

describe('one key among others', () => {
  it('pushes out its own answers where they take more than half', () => {
    for (const limits of [
      { maxEntries: 10, maxBytes: 1e6 },
      { maxEntries: 100, maxBytes: 1_040 },
    ]) {
      const cache = make(limits);
      for (let i = 0; i < 4; i++) cache.put(`b${i}`, 'b', 100, kept, s(0), 'b');
      for (let i = 0; i < 50; i++) cache.put(`a${i}`, 'a', 100, kept, s(1), 'a');
      expect(Array.from({ length: 4 }, (_, i) => cache.ask(`b${i}`, s(2), 'b')?.value)).toEqual(['b', 'b', 'b', 'b']);
      expect(cache.ask('a49', s(2), 'a')?.value).toBe('a');
    }
  });

  it('has half of the warm ones at most while others want them, and all that nobody else wants', () => {
    const cache = make({ maxEntries: 10_000, maxBytes: 1e9 });
    for (let i = 0; i < 400; i++) cache.put(`b${i}`, 'b', 10, kept, s(0), 'b');
    for (let i = 0; i < 2_000; i++) cache.put(`a${i}`, 'a', 10, kept, s(1), 'a');
    const due = cache.due(s(600));
    expect([due.length, due.filter((owner) => owner === 'b').length]).toEqual([WARM_ENTRIES, 400]);
  });

  it('takes over an answer that it asks for', () => {
    const cache = make({ maxEntries: 4, maxBytes: 1e6 });
    cache.put('shared', 'shared', 10, kept, s(0), 'a');
    for (const key of ['a1', 'a2', 'a3']) cache.put(key, key, 10, kept, s(1), 'a');
    cache.ask('shared', s(2), 'b');
    for (const key of ['a1', 'a2', 'a3']) cache.ask(key, s(2), 'a');
    cache.put('a4', 'a4', 10, kept, s(3), 'a');
    expect(['shared', 'a1', 'a2'].map((key) => cache.ask(key, s(4), 'b')?.value)).toEqual(['shared', undefined, 'a2']);
  });
});
