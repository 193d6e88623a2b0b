import { randomBytes, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { rows, type ClickHouse, type Param, type Reader } from '../../../common/clickhouse/clickhouse.ts';
import type { ParameterMistake } from '../../../common/http/errors.ts';
import type { CreatedKey, ListedKey } from '../../../common/listed-key.ts';
import { hashKey, type Key } from './key-ring.ts';
import { parseTimestamp } from '../definition/timestamp.ts';

/** Keys in ClickHouse: create, list, rotate, revoke. Only the hash of a key is stored. */
const statement = (name: string): string => readFileSync(new URL(`sql/${name}.sql`, import.meta.url), 'utf8');
const [LIST, CREATE, REVOKE, USE, ROTATE] = ['list_keys', 'create_key', 'revoke_key', 'use_keys', 'rotate_key'].map(
  statement,
) as [string, string, string, string, string];
/** The longest time for which a key and its replacement are both valid. */
export const LONGEST_OVERLAP_SECONDS = 30 * 86_400;
export const DEFAULT_OVERLAP_SECONDS = 3_600;
/** a slower list is requested again: a revocation must not wait for a hanging read */
const READ_TIMEOUT_MS = 4_000;

export type NewKey = Omit<Key, 'id' | 'hash'>;

/** Times are unix milliseconds. */
interface KeyRow extends Pick<ListedKey, 'id' | 'name' | 'scopes' | 'projects'> {
  readonly hash: string;
  readonly created_at: number;
  readonly expires_at: number | null;
  readonly revoked_at: number | null;
  readonly last_used_at: number | null;
}

/** Returns when a key stops working: at its expiry or its revocation. Null if never. */
function endOf({ expires_at: expiry, revoked_at: revocation }: KeyRow): number | null {
  return expiry === null || revocation === null ? (expiry ?? revocation) : Math.min(expiry, revocation);
}

const iso = (at: number | null | undefined): string | null =>
  at === null || at === undefined ? null : new Date(at).toISOString();

/** Returns 256 random bits as text. */
export function randomKey(): string {
  return `sluice_${randomBytes(32).toString('base64url')}`;
}

const NEW_KEY_FIELDS = ['name', 'scopes', 'projects', 'expires_at'];

/** Returns what a caller sent to create a key, or every mistake in it. */
export function readNewKey(given: unknown, now: number): { key: NewKey } | { mistakes: ParameterMistake[] } {
  const isObject = typeof given === 'object' && given !== null && !Array.isArray(given);
  const fields = isObject ? (given as Record<string, unknown>) : {};
  const mistakes: ParameterMistake[] = [];
  const wrong = (parameter: string, message: string): void => void mistakes.push({ parameter, message });
  for (const field of Object.keys(fields)) if (!NEW_KEY_FIELDS.includes(field)) wrong(field, 'is not known');
  const name = fields['name'];
  if (typeof name !== 'string' || name.trim() === '' || name.length > 200 || /\p{Cc}|\p{Cs}/u.test(name))
    wrong('name', 'must be a text of 1 to 200 characters, none of them a control character');
  const strings = (field: string): string[] => {
    const value = fields[field] ?? [];
    if (Array.isArray(value) && value.every((v): v is string => typeof v === 'string')) return [...new Set(value)];
    wrong(field, 'must be a list of texts');
    return [];
  };
  const scopes = strings('scopes');
  if (scopes.length === 0 && !mistakes.some((m) => m.parameter === 'scopes'))
    wrong('scopes', 'must have at least one of admin, query, query:<endpoint>, ingest');
  for (const scope of scopes)
    if (!/^(admin|query|ingest|query:[a-z0-9._-]{1,80})$/.test(scope))
      wrong('scopes', `${JSON.stringify(scope)} is none of admin, query, query:<endpoint>, ingest`);
  const projects = strings('projects');
  for (const project of projects)
    if (!/^[A-Za-z0-9_-]{1,64}$/.test(project))
      wrong('projects', `${JSON.stringify(project)} is not 1 to 64 of A-Z a-z 0-9 _ -`);
  if (projects.length > 0 && scopes.includes('admin')) wrong('projects', 'an admin key has all projects');
  let expiresAt: number | undefined;
  if (fields['expires_at'] !== undefined && fields['expires_at'] !== null) {
    const micros = typeof fields['expires_at'] === 'string' ? parseTimestamp(fields['expires_at']) : undefined;
    expiresAt = micros === undefined ? undefined : Number(micros / 1000n);
    if (expiresAt === undefined) wrong('expires_at', 'must be a timestamp such as 2027-01-01T00:00:00Z');
    else if (expiresAt <= now) wrong('expires_at', 'must be in the future');
  }
  if (mistakes.length > 0) return { mistakes };
  return { key: { name: String(name).trim(), scopes, projects, expiresAt } };
}

async function readRows(clickhouse: Reader, now: number): Promise<KeyRow[]> {
  return rows<KeyRow>(
    await clickhouse.read({
      sql: LIST,
      params: { now },
      format: 'JSONEachRow',
      signal: AbortSignal.timeout(READ_TIMEOUT_MS),
    }),
  );
}

/** Returns every key that is not revoked, for the key ring. */
export async function readKeys(clickhouse: Reader, now: number): Promise<Key[]> {
  return (await readRows(clickhouse, now)).map((r) => ({
    id: r.id,
    name: r.name,
    hash: Buffer.from(r.hash, 'hex'),
    scopes: r.scopes,
    projects: r.projects,
    expiresAt: endOf(r) ?? undefined,
  }));
}

/** Returns every key that is not revoked, expired ones too, oldest first. */
export async function listKeys(clickhouse: Reader, now: number): Promise<ListedKey[]> {
  return (await readRows(clickhouse, now)).map((r) => ({
    id: r.id,
    name: r.name,
    scopes: r.scopes,
    projects: r.projects,
    created_at: new Date(r.created_at).toISOString(),
    expires_at: iso(endOf(r)),
    last_used_at: iso(r.last_used_at),
  }));
}

/** Creates a key and returns its text, this once: only its hash is stored. */
export async function createKey(clickhouse: ClickHouse, key: NewKey, now: number): Promise<CreatedKey> {
  const { created, params } = newKey(key, now);
  await clickhouse.execute({ sql: CREATE, params });
  return created;
}

/** A key that replaced another, and until when both are valid. */
export type RotatedKey = CreatedKey & {
  readonly replaces: { readonly id: string; readonly expires_at: string | null };
};

/**
 * Creates a key like another one, with the same expiry. The other one ends after `overlapSeconds`, or earlier if it
 * would have ended earlier. Undefined if there is no such key, or it has ended.
 */
export async function rotateKey(
  clickhouse: ClickHouse,
  id: string,
  overlapSeconds: number,
  now: number,
): Promise<RotatedKey | undefined> {
  const old = (await readRows(clickhouse, now)).find((r) => r.id === id);
  if (old === undefined) return undefined;
  const end = endOf(old) ?? Infinity;
  if (end <= now) return undefined;
  const endsAt = now + overlapSeconds * 1000;
  const { created, params } = newKey(
    { name: old.name, scopes: old.scopes, projects: old.projects, expiresAt: old.expires_at ?? undefined },
    now,
  );
  await clickhouse.execute({ sql: ROTATE, params: { ...params, old_id: id, ends_at: endsAt } });
  return { ...created, replaces: { id, expires_at: iso(Math.min(endsAt, end)) } };
}

function newKey(
  { name, scopes, projects, expiresAt }: NewKey,
  now: number,
): { created: CreatedKey; params: Readonly<Record<string, Param>> } {
  const [id, key] = [randomUUID(), randomKey()];
  return {
    created: { id, key, name, scopes, projects, expires_at: iso(expiresAt) },
    params: {
      id,
      name,
      hash: hashKey(key).toString('hex'),
      scopes: [...scopes],
      projects: [...projects],
      created_at: now,
      expires_at: expiresAt ?? null,
    },
  };
}

/** False if there is no such key. A replaced key is revoked whatever the time is: it may still be valid elsewhere. */
export async function revokeKey(clickhouse: ClickHouse, id: string): Promise<boolean> {
  if (!(await readRows(clickhouse, 0)).some((r) => r.id === id)) return false;
  await clickhouse.execute({ sql: REVOKE, params: { id } });
  return true;
}

/** Saves when keys were last used: id and unix milliseconds. */
export async function noteUses(
  clickhouse: ClickHouse,
  uses: readonly (readonly [id: string, at: number])[],
): Promise<void> {
  await clickhouse.execute({
    sql: USE,
    params: { ids: uses.map(([id]) => id), ats: uses.map(([, at]) => at) },
  });
}
