import { expect, test } from 'vitest';
import { groupRepairs, type Repair } from './repairs.ts';

const HOUR = 3600;
const repair = (from: number, to: number, more: Partial<Repair> = {}): Repair => ({
  source: 'edge_logs',
  period: 0,
  from,
  to,
  reason: 'recovery',
  accept_loss: false,
  requested_at: '',
  outcome: '',
  ...more,
});

test('repairs of the same hours are one build, whatever their order', () => {
  const [a, b, c] = [repair(10, 20), repair(HOUR - 1, HOUR + 1), repair(HOUR + 600, HOUR + 700)];
  expect(groupRepairs([a, b, c])).toEqual([[a, b, c]]);
  expect(groupRepairs([a, a])).toEqual([[a, a]]);
});

test('other hours, periods, sources, reasons and orders are builds of their own', () => {
  const first = repair(0, HOUR);
  for (const other of [
    repair(HOUR, HOUR + 1),
    repair(0, HOUR, { period: 86_400 }),
    repair(0, HOUR, { source: 'function_edge_logs' }),
    repair(0, HOUR, { reason: 'audit' }),
    repair(0, HOUR, { accept_loss: true }),
  ])
    expect(groupRepairs([first, other])).toEqual([[first], [other]]);
});

test('one that was refused because of its own rows holds up no other', () => {
  const open = (['', 'unfinished', 'busy', 'incomplete', 'differs', 'failed', 'incomplete', ''] as const).map(
    (outcome) => repair(0, 10, { outcome }),
  );
  const [a, b, c, lost, wrong, failed, lostToo, d] = open;
  expect(groupRepairs(open)).toEqual([[a, b, c, d], [lost], [wrong], [failed], [lostToo]]);
});
