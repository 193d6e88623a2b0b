import { expect, test } from 'vitest';
import { ORPHANS } from '../reconcile.ts';
import { reconcileCommand } from './reconcile.ts';

test('rows of a batch that a killed process left unfinished come with what completes them', () => {
  const shown = (fault: string): string =>
    String(reconcileCommand.print({ ok: false, partitions: [], faults: [fault] }));
  expect(shown(`edge_logs incarnation 0 partition 1: offsets 4 to 7: 4 ${ORPHANS}`)).toMatch(
    /ledger\nA process that was killed .* start it, then repeat\.\n$/,
  );
  expect(shown('edge_logs incarnation 0 partition 1: the sums do not agree')).not.toContain('killed');
});
