import { expect, test } from 'vitest';
import { commitInStint, createMembership } from './membership.ts';

function createMember() {
  let now = 0;
  const membership = createMembership(() => now, 30_000);
  return {
    membership,
    pass: (ms: number) => {
      now += ms;
    },
  };
}

const never = (): Promise<boolean> => {
  throw new Error('must not be asked');
};

test('a partition is owned in the stint in which it was won, and in no other', () => {
  const { membership } = createMember();
  expect(membership.joined).toBe(false);
  membership.won(['a', 'b']);
  expect(membership.joined).toBe(true);
  const { stint } = membership;
  expect(membership.owns('a', stint)).toBe(true);
  expect(membership.owns('c', stint)).toBe(false);
  membership.lost();
  expect(membership.joined).toBe(false);
  expect(membership.owns('a', stint)).toBe(false);
  membership.won(['a']);
  expect(membership.owns('a', stint)).toBe(false);
  expect(membership.owns('a', membership.stint)).toBe(true);
  expect(membership.owns('b', membership.stint)).toBe(false);
});

test('membership is in doubt after half a session without a heartbeat', () => {
  const { membership, pass } = createMember();
  membership.won(['a']);
  pass(14_999);
  expect(membership.isFresh()).toBe(true);
  pass(1);
  expect(membership.isFresh()).toBe(false);
  membership.heartbeat();
  expect(membership.isFresh()).toBe(true);
});

test('a heartbeat counts from when it was sent: an answer that comes late makes nobody a member', () => {
  const { membership, pass } = createMember();
  membership.won(['a']);
  pass(20_000);
  membership.heartbeat(15_000);
  expect(membership.isFresh()).toBe(false);
  membership.heartbeat(14_999);
  expect(membership.isFresh()).toBe(true);
});

test('a commit is not sent once the partition is lost', async () => {
  const { membership } = createMember();
  membership.won(['a']);
  const { stint } = membership;
  membership.lost();
  membership.won(['a']);
  expect(await commitInStint(membership, 'a', stint, never as () => Promise<never>, never)).toBe(false);
});

test('a commit that arrived while the partition was being lost does not count', async () => {
  const { membership } = createMember();
  membership.won(['a']);
  expect(await commitInStint(membership, 'a', membership.stint, async () => membership.lost(), never)).toBe(false);
});

test('a commit that failed is sent again while the partition is owned, as long as it is wanted', async () => {
  const { membership } = createMember();
  membership.won(['a']);
  let sent = 0;
  const failing = async (): Promise<void> => {
    if (++sent < 3) throw new Error('away');
  };
  expect(await commitInStint(membership, 'a', membership.stint, failing, async () => true)).toBe(true);
  expect(sent).toBe(3);

  const attempts: number[] = [];
  const away = async (): Promise<void> => {
    throw new Error('away');
  };
  expect(
    await commitInStint(membership, 'a', membership.stint, away, async (attempt) => {
      attempts.push(attempt);
      return attempt < 2;
    }),
  ).toBe(false);
  expect(attempts).toEqual([0, 1, 2]);

  expect(
    await commitInStint(membership, 'a', membership.stint, away, async () => {
      membership.lost();
      return true;
    }),
  ).toBe(false);
});
