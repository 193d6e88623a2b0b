import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { sources } from '../../../common/sources.ts';
import { openTestClickHouse, type TestClickHouse } from '../../harness/clickhouse.ts';
import { differences } from '../../evaluate/outcomes.ts';
import { anyEvent, anyMessage, anyTime, AWKWARD, eventWith, PATHS } from '../../evaluate/messages.ts';
import { createWorld, type World } from './world.ts';

// Guarantee: whatever a message is, the mapping makes of it what a plain reading of its bytes makes (oracle.ts): the
// same row, or the same reason.

const SEED = Number(process.env['SEED'] ?? Date.now() % 1e9);
/** batches per source and kind; more of them: RUNS=100 */
const RUNS = Number(process.env['RUNS'] ?? 2);
const BATCH = { minLength: 60, maxLength: 120 } as const;

describe(`random messages are mapped as the oracle says (seed ${SEED})`, () => {
  let engine: TestClickHouse;
  let world: World;
  beforeAll(async () => {
    engine = await openTestClickHouse();
    world = createWorld(engine.clickhouse);
  });
  afterAll(async () => engine.close());

  test.each(sources.map((s) => s.name))('%s', async (source) => {
    const event = fc.oneof(
      { weight: 3, arbitrary: anyEvent(source) },
      { weight: 1, arbitrary: anyTime.map((timestamp) => eventWith(source, { timestamp })) },
    );
    await fc.assert(
      fc.asyncProperty(
        fc.array(
          fc.oneof(
            event.map((text) => Buffer.from(text)),
            anyMessage(source),
          ),
          BATCH,
        ),
        async (messages) => {
          const { actual, expected } = await world.store(source, messages);
          expect(differences(actual, expected, messages)).toEqual([]);
        },
      ),
      { seed: SEED, numRuns: RUNS, endOnFailure: true },
    );
  });

  test.each(sources.map((s) => s.name))('%s: every awkward value at every place that is read', async (source) => {
    const messages = [...PATHS[source].map((path) => path.join('.')), 'id', 'timestamp', 'project'].flatMap((path) =>
      AWKWARD.map((value) => eventWith(source, { [path]: value })),
    );
    const { actual, expected } = await world.store(source, messages);
    expect(differences(actual, expected, messages)).toEqual([]);
  });
});
