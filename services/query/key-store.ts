import { randomBytes, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { rows, type ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import type { Clock } from '../../common/clock.ts';
import type { Logger } from '../../common/logger.ts';
import { hashKey, type Key, type KeyRing } from './keys.ts';
import type { ParameterMistake } from './params.ts';
import { parseTimestamp } from './timestamp.ts';

/** Keys in ClickHouse: made, listed and revoked here; loaded into the key ring every few seconds, so that a revocation holds everywhere within 10 s. */
const LOAD_EVERY_MS = 3_000;
const NOTE_USES_EVERY_MS = 60_000;

const statement = (name: string): string => readFileSync(new URL(`sql/${name}.sql`, import.meta.url), 'utf8');
const [LIST, CREATE, REVOKE, USE] = ['list_keys', 'create_key', 'revoke_key', 'use_keys'].map(statement) as [string, string, string, string];
const WRITE_SETTINGS = { async_insert: 0 } as const;

/** A key as it is shown: never the key itself, nor its hash. Times as ISO 8601. */
export interface ListedKey {
  readonly id: string;
  readonly name: string;
  readonly scopes: readonly string[];
  readonly projects: readonly string[];
  readonly created_at: string;
  readonly expires_at: string | null;
  readonly last_used_at: string | null;
}

export interface NewKey {
  readonly name: string;
  readonly scopes: readonly string[];
  readonly projects: readonly string[];
  readonly expiresAt: number | undefined;
}

/** A key that was made: the only time that it is shown. */
export type CreatedKey = { readonly key: string } & Pick<ListedKey, 'id' | 'name' | 'scopes' | 'projects' | 'expires_at'>;

interface Row {
  readonly id: string;
  readonly name: string;
  readonly hash: string;
  readonly scopes: string[];
  readonly projects: string[];
  readonly created_at: number;
  readonly expires_at: number | null;
  readonly last_used_at: number | null;
}

const iso = (at: number | null | undefined): string | null => (at === null || at === undefined ? null : new Date(at).toISOString());

/** A text that nobody guesses: 256 random bits. */
export function randomKey(): string {
  return `sluice_${randomBytes(32).toString('base64url')}`;
}

/** What a caller sent to make a key, or every mistake in it. `endpoints`: names that a scope may have. */
export function readNewKey(given: unknown, now: number): { key: NewKey } | { mistakes: ParameterMistake[] } {
  const mistakes: ParameterMistake[] = [];
  const wrong = (parameter: string, message: string): void => {
    mistakes.push({ parameter, message });
  };
  const fields = typeof given === 'object' && given !== null && !Array.isArray(given) ? (given as Record<string, unknown>) : {};
  for (const name of Object.keys(fields)) if (!['name', 'scopes', 'projects', 'expires_at'].includes(name)) wrong(name, 'is not known');

  const name = fields['name'];
  if (typeof name !== 'string' || name.trim() === '' || name.length > 200) wrong('name', 'must be a text of 1 to 200 characters');
  const strings = (field: string, value: unknown): string[] => {
    if (Array.isArray(value) && value.every((v): v is string => typeof v === 'string')) return [...new Set(value)];
    wrong(field, 'must be a list of texts');
    return [];
  };
  const scopes = strings('scopes', fields['scopes'] ?? []);
  if (scopes.length === 0) wrong('scopes', 'must have at least one of admin, query, query:<endpoint>, ingest');
  for (const scope of scopes) if (!/^(admin|query|ingest|query:[a-z0-9._-]{1,80})$/.test(scope)) wrong('scopes', `${JSON.stringify(scope)} is none of admin, query, query:<endpoint>, ingest`);
  const projects = strings('projects', fields['projects'] ?? []);
  for (const project of projects) if (!/^[A-Za-z0-9_-]{1,64}$/.test(project)) wrong('projects', `${JSON.stringify(project)} is not 1 to 64 of A-Z a-z 0-9 _ -`);
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

export interface KeyStore {
  create(key: NewKey): Promise<CreatedKey>;
  list(): Promise<ListedKey[]>;
  /** False where there is no such key. */
  revoke(id: string): Promise<boolean>;
  noteUse(key: Key, now: number): void;
  /** Undefined when the list is loaded and young enough, else what is wrong. */
  check(): Promise<string | undefined>;
  /** Notes the last uses and ends. */
  stop(): Promise<void>;
}

/** Starts loading at once; until the first list is there, the ring says `unavailable` of keys that it does not know. */
export function startKeyStore({ clickhouse, ring, clock, logger }: { clickhouse: ClickHouse; ring: KeyRing; clock: Clock; logger: Logger }): KeyStore {
  const uses = new Map<string, number>();
  const known = new Set<string>();
  let failing = false;
  let loaded = false;
  let stopped = false;
  let loading: Promise<void> = Promise.resolve();

  async function read(): Promise<Row[]> {
    return rows<Row>(await clickhouse.read({ sql: LIST, format: 'JSONEachRow' }));
  }
  async function load(): Promise<void> {
    const asOf = clock();
    try {
      const listed = await read();
      known.clear();
      for (const r of listed) known.add(r.id);
      ring.load(listed.map((r) => ({ id: r.id, name: r.name, hash: Buffer.from(r.hash, 'hex'), scopes: r.scopes, projects: r.projects, expiresAt: r.expires_at ?? undefined })), asOf);
      if (failing) logger.info('keys_loaded_again');
      failing = false;
      loaded = true;
    } catch (error) {
      if (!failing && loaded) logger.warn({ err: error }, 'keys_not_loaded');
      failing = true;
    }
  }
  /** One after the other, so that an old list never replaces a newer one. */
  function loadNext(): Promise<void> {
    loading = loading.then(load);
    return loading;
  }
  async function noteUses(): Promise<void> {
    const used = [...uses].filter(([id]) => known.has(id));
    uses.clear();
    if (used.length === 0) return;
    try {
      await clickhouse.execute({ sql: USE, params: { ids: used.map(([id]) => id), ats: used.map(([, at]) => at) }, settings: WRITE_SETTINGS });
    } catch (error) {
      logger.warn({ err: error }, 'key_uses_not_noted');
    }
  }

  void loadNext();
  const loadTimer = setInterval(() => void loadNext(), LOAD_EVERY_MS);
  const useTimer = setInterval(() => void noteUses(), NOTE_USES_EVERY_MS);
  return {
    async create({ name, scopes, projects, expiresAt }) {
      const [id, key] = [randomUUID(), randomKey()];
      await clickhouse.execute({
        sql: CREATE,
        params: { id, name, hash: hashKey(key).toString('hex'), scopes: [...scopes], projects: [...projects], created_at: clock(), expires_at: expiresAt ?? null },
        settings: WRITE_SETTINGS,
      });
      await loadNext();
      return { id, key, name, scopes, projects, expires_at: iso(expiresAt) };
    },
    async list() {
      return (await read()).map((r) => ({
        id: r.id, name: r.name, scopes: r.scopes, projects: r.projects, created_at: new Date(r.created_at).toISOString(), expires_at: iso(r.expires_at), last_used_at: iso(r.last_used_at),
      }));
    },
    async revoke(id) {
      if (!(await read()).some((r) => r.id === id)) return false;
      await clickhouse.execute({ sql: REVOKE, params: { id, at: clock() }, settings: WRITE_SETTINGS });
      await loadNext();
      return true;
    },
    noteUse(key, now) {
      uses.set(key.id, now);
    },
    async check() {
      if (stopped) return 'stopped';
      return loaded ? undefined : 'keys are not loaded yet';
    },
    async stop() {
      stopped = true;
      clearInterval(loadTimer);
      clearInterval(useTimer);
      await loading;
      await noteUses();
    },
  };
}
