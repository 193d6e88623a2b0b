import { describe, expect, test } from 'vitest';
import { Joints, type Contribution, type Seat } from './joint.ts';
import type { Ended } from './ports.ts';

const NEVER = new Promise<void>(() => {});

interface Setup {
  readonly fence?: () => Ended | undefined;
  readonly outcome?: () => Promise<'done' | 'unfinished'>;
}

/** Contributions of one text each; `sent` has the texts of each insert. */
function inserts() {
  const sent: string[][] = [];
  const of = (text: string, { fence = () => undefined, outcome = async () => 'done' }: Setup = {}) =>
    ({
      rows: text,
      fence: async () => fence(),
      async insertAll(contributions) {
        sent.push(contributions.map(({ rows }) => rows));
        return outcome();
      },
    }) satisfies Contribution<string>;
  return { sent, of };
}

/** As many seats of one joint insert. */
function seats(count: number, deadline = NEVER): Seat[] {
  const joint = new Joints().begin(deadline);
  return Array.from({ length: count }, () => joint.seat());
}

/** Lets everything happen that waits for nothing but promises. */
const settled = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));

describe('a joint insert', () => {
  test('is one for all who took a seat, when the last of them has come', async () => {
    const { sent, of } = inserts();
    const [a, b, c] = seats(3);
    const first = [a!.insert(of('a')), b!.insert(of('b'))];
    await settled();
    expect(sent).toEqual([]);
    expect(await Promise.all([...first, c!.insert(of('c'))])).toEqual(['done', 'done', 'done']);
    expect(sent).toEqual([['a', 'b', 'c']]);
  });

  test('does not wait for one who leaves, and leaving twice or after coming is nothing', async () => {
    const { sent, of } = inserts();
    const [a, b, c] = seats(3);
    const first = a!.insert(of('a'));
    a!.leave();
    b!.leave();
    b!.leave();
    await settled();
    expect(sent).toEqual([]);
    await Promise.all([first, c!.insert(of('c'))]);
    expect(sent).toEqual([['a', 'c']]);
  });

  test('has nothing of a batch that left: what is completed by itself goes in alone', async () => {
    const { sent, of } = inserts();
    const [a, b] = seats(2);
    expect(a!.isAwaited()).toBe(true);
    a!.leave();
    expect(a!.isAwaited()).toBe(false);
    expect(await a!.insert(of('a'))).toBe('done');
    expect(await b!.insert(of('b'))).toBe('done');
    expect(sent).toEqual([['a'], ['b']]);
  });

  test('is sent at the deadline without the batch that is late, which is inserted alone', async () => {
    const { sent, of } = inserts();
    const deadline = Promise.withResolvers<void>();
    const [a, b] = seats(2, deadline.promise);
    const first = a!.insert(of('a'));
    deadline.resolve();
    await settled();
    // it needs a permit of its own now
    expect(b!.isAwaited()).toBe(false);
    expect(await first).toBe('done');
    expect(await b!.insert(of('b'))).toBe('done');
    expect(sent).toEqual([['a'], ['b']]);
  });

  test('goes without one whose partition is lost by then', async () => {
    const { sent, of } = inserts();
    const [a, b] = seats(2);
    const both = [a!.insert(of('a', { fence: () => 'over' })), b!.insert(of('b'))];
    expect(await Promise.all(both)).toEqual(['over', 'done']);
    expect(sent).toEqual([['b']]);
  });

  test('is not sent where nobody may write, nor where all have left', async () => {
    const { sent, of } = inserts();
    const [a] = seats(1);
    expect(await a!.insert(of('a', { fence: () => 'retake' }))).toBe('retake');
    for (const seat of seats(2)) seat.leave();
    await settled();
    expect(sent).toEqual([]);
  });

  test('tells everybody how it ended', async () => {
    const { of } = inserts();
    const [a, b] = seats(2);
    const unfinished = of('a', { outcome: async () => 'unfinished' });
    expect(await Promise.all([a!.insert(unfinished), b!.insert(of('b'))])).toEqual(['unfinished', 'unfinished']);
    const [c, d] = seats(2);
    const away = of('c', { outcome: () => Promise.reject(new Error('away')) });
    const failed = await Promise.allSettled([c!.insert(away), d!.insert(of('d'))]);
    expect(failed).toMatchObject([{ reason: { message: 'away' } }, { reason: { message: 'away' } }]);
  });
});

test('who takes a partition waits for the joint inserts of the lanes before it, and has the engine end them, also those that come a moment later', async () => {
  const { of } = inserts();
  const joints = new Joints();
  const hanging = Promise.withResolvers<'done'>();
  const [a, b] = [joints.begin(NEVER), joints.begin(NEVER)].map((joint) => joint.seat());
  let kills = 0;
  let hasEnded = false;
  const ended = joints.end(
    async () => {
      if (++kills === 3) hanging.resolve('done');
    },
    () => settled(),
  );
  void ended.then(() => (hasEnded = true));
  // one that began later does not count
  joints.begin(NEVER).seat();
  await settled();
  const inserting = a!.insert(of('a', { outcome: () => hanging.promise }));
  await inserting;
  await settled();
  expect([kills >= 3, hasEnded]).toEqual([true, false]);
  b!.leave();
  await ended;
  await new Joints().end(
    () => expect.fail('nothing runs'),
    () => expect.fail('nothing is to be waited for'),
  );
});
