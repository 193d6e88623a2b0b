import { expect, test } from 'vitest';
import { UNFINISHED } from '../operate/reconcile.ts';
import { reconcileCommand } from './reconcile.ts';

test.each(UNFINISHED)('what a killed process left unfinished comes with what completes it: %s', (unfinished) => {
  const shown = (fault: string): string =>
    String(reconcileCommand.print({ ok: false, partitions: [], faults: [fault] }));
  expect(shown(`edge_logs incarnation 0 partition 1: offsets 4 to 7: 4 ${unfinished}`)).toMatch(
    /\nA process that was killed .* start it, then repeat\.\n$/,
  );
  expect(shown(`edge_logs incarnation 0 partition 1: offsets 4 to 7: ${unfinished} (2 ranges in all)`)).toContain(
    'start it, then repeat',
  );
  expect(shown('edge_logs incarnation 0 partition 1: the sums do not agree')).not.toContain('killed');
});
