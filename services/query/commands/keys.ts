import { systemClock } from '../../../common/clock.ts';
import { wholeNumber } from '../../../common/command/arguments.ts';
import { form, type Command } from '../../../common/command/command.ts';
import { UsageError } from '../../../common/errors.ts';
import { wordsOf } from '../../../common/http/errors.ts';
import type { CreatedKey, ListedKey } from '../../../common/listed-key.ts';
import {
  createKey,
  DEFAULT_OVERLAP_SECONDS,
  listKeys,
  LONGEST_OVERLAP_SECONDS,
  readNewKey,
  revokeKey,
  rotateKey,
  type NewKey,
  type RotatedKey,
} from '../keys/key-table.ts';

type Args =
  | ({ readonly action: 'create' } & Pick<ListedKey, 'name' | 'scopes' | 'projects' | 'expires_at'>)
  | { readonly action: 'list' }
  | { readonly action: 'revoke'; readonly id: string }
  | { readonly action: 'rotate'; readonly id: string; readonly overlapSeconds: number };
type Result =
  | CreatedKey
  | RotatedKey
  | { readonly keys: readonly ListedKey[] }
  | { readonly revoked: string }
  | { readonly unknown: string };

/**
 * Returns every value of an option that may be repeated; each may be a list with commas. Empty ones stay, and
 * readNewKey refuses them: `--project "$REF"` with an unset variable must not create a key for all projects.
 */
function all(values: readonly string[]): string[] {
  return values.flatMap((value) => value.split(',').map((part) => part.trim()));
}

/** Returns the key that the arguments describe. Throws UsageError with every mistake in them. */
function newKeyOf({ action: _, ...given }: Args, now: number): NewKey {
  const read = readNewKey(given, now);
  if ('mistakes' in read) throw new UsageError(wordsOf(read.mistakes));
  return read.key;
}

const KEY_ID = { type: 'string', pattern: '^[A-Za-z0-9-]{1,100}$' };

export const keysCommand: Command<Args, Result> = {
  name: 'keys',
  about: `  --scope    query (all endpoints), query:<endpoint>, ingest, admin (all); repeated or with commas
  --project  the key sees only these; repeated or with commas
  --expires  an instant such as 2027-01-01T00:00:00Z`,
  forms: {
    create: form({
      help: 'creates a key and prints it, this once',
      options: {
        name: { value: 'NAME', isRequired: true },
        scope: { value: 'SCOPE', isRequired: true, isRepeatable: true },
        project: { value: 'PROJECT', isRepeatable: true },
        expires: { value: 'TIME' },
      },
      schema: {
        // newKeyOf checks their values
        properties: { name: {}, scopes: {}, projects: {}, expires_at: {} },
        required: ['name', 'scopes', 'projects', 'expires_at'],
      },
      read({ name, scope, project, expires = null }): Args {
        const args: Args = { action: 'create', name, scopes: all(scope), projects: all(project), expires_at: expires };
        newKeyOf(args, systemClock());
        return args;
      },
    }),
    list: form({ help: 'lists the keys, without the keys themselves', read: (): Args => ({ action: 'list' }) }),
    revoke: form({
      help: 'revokes a key for good; it stops working within 10 s',
      words: ['ID'],
      schema: { properties: { id: KEY_ID }, required: ['id'] },
      read: (_, [id]): Args => ({ action: 'revoke', id }),
    }),
    rotate: form({
      help: `creates a key that replaces another and prints it, this once; both are valid for SECONDS (${DEFAULT_OVERLAP_SECONDS})`,
      words: ['ID'],
      options: { overlap: { value: 'SECONDS' } },
      schema: {
        properties: { id: KEY_ID, overlapSeconds: { type: 'integer', minimum: 0, maximum: LONGEST_OVERLAP_SECONDS } },
        required: ['id', 'overlapSeconds'],
      },
      read: ({ overlap = String(DEFAULT_OVERLAP_SECONDS) }, [id]): Args => ({
        action: 'rotate',
        id,
        overlapSeconds: wholeNumber(overlap),
      }),
    }),
  },

  afterUnknown: 'a key may have been created or revoked; npm run keys -- list shows it',
  async run({ clickhouse }, args) {
    const now = systemClock();
    if (args.action === 'list') return { keys: await listKeys(clickhouse, now) };
    if (args.action === 'rotate')
      return (await rotateKey(clickhouse, args.id, args.overlapSeconds, now)) ?? { unknown: args.id };
    if (args.action === 'revoke')
      return (await revokeKey(clickhouse, args.id)) ? { revoked: args.id } : { unknown: args.id };
    return await createKey(clickhouse, newKeyOf(args, now), now);
  },

  print(result) {
    if ('replaces' in result)
      return `${result.key}\n(shown this once; id ${result.id}; the key ${result.replaces.id} ends at ${result.replaces.expires_at})\n`;
    if ('key' in result) return `${result.key}\n(shown this once; id ${result.id})\n`;
    if ('revoked' in result) return `revoked ${result.revoked}: it stops working within 10 s\n`;
    if ('unknown' in result) return `there is no key ${result.unknown}\n`;
    if (result.keys.length === 0) return 'no keys besides the first one\n';
    return result.keys
      .map(
        (k) =>
          `${k.id}  ${k.name}  ${k.scopes.join(' ')}${k.projects.length > 0 ? `  projects ${k.projects.join(' ')}` : ''}  created ${k.created_at}  ${k.expires_at === null ? 'no expiry' : `expires ${k.expires_at}`}  ${k.last_used_at === null ? 'never used' : `last used ${k.last_used_at}`}\n`,
      )
      .join('');
  },
  audit: (result) => ('key' in result ? { created_id: result.id } : {}),
  exitCode: (result) => ('unknown' in result ? 1 : 0),
};
