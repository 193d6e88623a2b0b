import { expect, test } from 'vitest';
import { Guard } from './guard.ts';
import { Intake } from './intake.ts';
import type { Ports } from './ports.ts';

test('a lane that waits until it is surely a member sees that another group took its partition meanwhile', async () => {
  let group = 'ours';
  let looks = 0;
  const ports: Partial<Ports> = {
    group: 'ours',
    store: {
      register: async () => ({ period: 0, owner: { group, epoch: 1, former: undefined, isSettled: true } }),
    } satisfies Partial<Ports['store']> as Partial<Ports['store']> as Ports['store'],
    isOver: () => false,
    isMember: () => looks > 2,
    wait: async () => {
      looks++;
      group = 'another';
    },
  };
  const guard = new Guard(ports as Ports, new Intake({ fetchFrom: () => {} }));
  expect(await guard.fence()).toBe('retake');
  const over = new Guard(
    { ...ports, isOver: () => true, group: 'another' } as Ports,
    new Intake({ fetchFrom: () => {} }),
  );
  expect(await over.fence()).toBe('over');
});
