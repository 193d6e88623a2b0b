import { describe, expect, test } from 'vitest';
import { edgesOfFields, edgesOfJson, edgesOfRequests, edgesOfTimes, mutatedEvents, randomMessages } from './checks.ts';

// Guarantee: whatever a message is, evaluation makes of it what a plain reading of its bytes makes (oracle.ts): the
// same row in every column, or the same reason. Longer: npm run fuzz -- --events 1000000.

const SEED = Number(process.env['SEED'] ?? Date.now() % 1e9);

test('an event is valid exactly where JSON.parse and a strict decoder of UTF-8 take it: every byte, every pair of bytes, borders of UTF-8, cuts, depths', () => {
  expect(edgesOfJson()).toBeUndefined();
}, 60_000);

test('every awkward value at every place that is read, duplicate keys, escaped keys and lists give what the oracle says', async () => {
  expect(await edgesOfFields()).toBeUndefined();
}, 60_000);

test('references and families of requests are those of the oracle, up to the largest numbers of letters and windows', async () => {
  expect(await edgesOfRequests()).toBeUndefined();
}, 60_000);

test('timestamps are those of the grammar, and the range of retention is exact to the microsecond', async () => {
  expect(await edgesOfTimes()).toBeUndefined();
}, 60_000);

describe(`with seed ${SEED}`, () => {
  test('mutated events are valid exactly where JSON.parse takes them', () => {
    expect(mutatedEvents(SEED, 40_000)).toBeUndefined();
  }, 60_000);

  test('random messages of all sources give what the oracle says', async () => {
    await expect(randomMessages(SEED, 12)).resolves.toBeUndefined();
  }, 60_000);
});
