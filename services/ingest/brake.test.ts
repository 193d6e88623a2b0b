import { describe, expect, test } from 'vitest';
import { createShareCount } from './brake.ts';

describe('a partition is paused', () => {
  test('at more than the set share of the last messages, not at the share itself', () => {
    const count = createShareCount({ percent: 50, window: 100 });
    expect(count.look({ bad: 50, messages: 100 })).toBe(false);
    expect(count.look({ bad: 51, messages: 100 })).toBe(true);
  });

  test('not for a few bad messages of a small topic, however large their share', () => {
    const count = createShareCount({ percent: 50, window: 100 });
    expect(count.look({ bad: 50, messages: 50 })).toBe(false);
    expect(count.look({ bad: 51, messages: 51 })).toBe(true);
  });

  test('by the share of a batch that is larger than the window', () => {
    const count = createShareCount({ percent: 50, window: 100 });
    expect(count.look({ bad: 400, messages: 1_000 })).toBe(false);
    expect(count.look({ bad: 501, messages: 1_000 })).toBe(true);
  });

  test('never at 100 percent', () => {
    const count = createShareCount({ percent: 100, window: 10 });
    expect(count.look({ bad: 1_000, messages: 1_000 })).toBe(false);
  });
});

describe('the ledger is looked at', () => {
  test('only when what was bad and all messages since could be too many', () => {
    const count = createShareCount({ percent: 50, window: 100 });
    expect([count.add(30), count.add(20), count.add(1)]).toEqual([false, false, true]);
    expect(count.look({ bad: 40, messages: 51 })).toBe(false);
    expect([count.add(10), count.add(1)]).toEqual([false, true]);
  });

  test('always before it is too late: whatever the messages are, no look is missed', () => {
    // every message bad, one after the other
    const count = createShareCount({ percent: 30, window: 10 });
    let bad = 0;
    for (;;) {
      bad++;
      if (count.add(1) && count.look({ bad, messages: bad })) break;
    }
    expect(bad).toBe(4);
  });
});
