import { expect, test } from 'vitest';
import type { ClickHouse, Statement } from '../../../common/clickhouse/clickhouse.ts';
import { hashKey } from './key-ring.ts';
import { listKeys, readKeys, rotateKey } from './key-table.ts';

const NOW = Date.UTC(2026, 2, 1);
const HOUR_MS = 3_600_000;

/** A table with one key that expires then, and ends as a key that was rotated or revoked. */
function tableWith(
  expires_at: number | null,
  revoked_at: number | null = null,
): { readonly clickhouse: ClickHouse; readonly executed: Statement[] } {
  const executed: Statement[] = [];
  const row = {
    id: 'a',
    name: 'n',
    hash: '',
    scopes: ['query'],
    projects: ['p'],
    created_at: 0,
    revoked_at,
    last_used_at: null,
  };
  const clickhouse = {
    read: async () => ({ body: Buffer.from(JSON.stringify({ ...row, expires_at })) }),
    execute: async (statement: Statement) => void executed.push(statement),
  } as unknown as ClickHouse;
  return { clickhouse, executed };
}

test('a key that has expired, or that is not there, gives no other one', async () => {
  const { clickhouse, executed } = tableWith(NOW);
  expect(await rotateKey(clickhouse, 'a', 60, NOW)).toBe(undefined);
  expect(await rotateKey(clickhouse, 'b', 60, NOW - 1)).toBe(undefined);
  expect(executed).toEqual([]);
});

test('a key ends when the overlap does, or at its own expiry if that is earlier; the new one has that expiry', async () => {
  for (const [expiresAt, endsAt] of [
    [null, NOW + HOUR_MS],
    [NOW + 2 * HOUR_MS, NOW + HOUR_MS],
    [NOW + 1, NOW + 1],
  ] as const) {
    const { clickhouse, executed } = tableWith(expiresAt);
    const rotated = await rotateKey(clickhouse, 'a', 3_600, NOW);
    expect(rotated).toMatchObject({
      name: 'n',
      scopes: ['query'],
      projects: ['p'],
      expires_at: expiresAt === null ? null : new Date(expiresAt).toISOString(),
      replaces: { id: 'a', expires_at: new Date(endsAt).toISOString() },
    });
    expect(executed.map(({ params }) => params)).toMatchObject([
      { old_id: 'a', ends_at: NOW + HOUR_MS, hash: hashKey(rotated!.key).toString('hex'), expires_at: expiresAt },
    ]);
  }
});

test.each([
  ['at its expiry', 1, null, 1],
  ['at the end of its overlap', null, 2, 2],
  ['at whichever is earlier', 3, 4, 3],
  ['at whichever is earlier', 6, 5, 5],
  ['never', null, null, undefined],
])('a key is listed and trusted with its end: %s', async (_, expiresAt, revokedAt, end) => {
  const { clickhouse } = tableWith(expiresAt, revokedAt);
  expect(await readKeys(clickhouse, 0)).toMatchObject([{ expiresAt: end }]);
  expect(await listKeys(clickhouse, 0)).toMatchObject([
    { expires_at: end === undefined ? null : new Date(end).toISOString() },
  ]);
});
