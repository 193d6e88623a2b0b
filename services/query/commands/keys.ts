import { systemClock } from '../../../common/clock.ts';
import { oneOfActions } from '../../../common/command/arguments.ts';
import { UsageError, type Command } from '../../../common/command/command.ts';
import {
  createKey,
  listKeys,
  readNewKey,
  readOverlap,
  revokeKey,
  rotateKey,
  type CreatedKey,
  type ListedKey,
  type RotatedKey,
} from '../keys/key-table.ts';

const DEFAULT_OVERLAP_SECONDS = 3_600;

type Args =
  | {
      readonly action: 'create';
      readonly name: string;
      readonly scopes: readonly string[];
      readonly projects: readonly string[];
      readonly expires_at: string | null;
    }
  | { readonly action: 'list' }
  | { readonly action: 'revoke'; readonly id: string }
  | { readonly action: 'rotate'; readonly id: string; readonly overlapSeconds: number };
type Result =
  | { readonly created: CreatedKey }
  | { readonly rotated: RotatedKey }
  | { readonly keys: readonly ListedKey[] }
  | { readonly revoked: string }
  | { readonly unknown: string };

/** Returns every value of an option that may be repeated; each may be a list with commas. */
function all(value: unknown): string[] {
  return [value]
    .flat()
    .flatMap((v) => (typeof v === 'string' ? v.split(',') : []))
    .map((v) => v.trim())
    .filter((v) => v !== '');
}

/** readNewKey checks the rest. */
const TEXT = { type: 'string', maxLength: 200 };
const KEY_ID = { type: 'string', pattern: '^[A-Za-z0-9-]{1,100}$' };
const TEXTS = { type: 'array', items: TEXT, maxItems: 1_000 };

/**
 * Manages the keys of callers. A new key works everywhere at once. A revoked one stops working everywhere within 10 s.
 */
export const keysCommand: Command<Args, Result> = {
  name: 'keys',
  help: `npm run keys -- create --name NAME --scope SCOPE... [--project P...] [--expires 2027-01-01T00:00:00Z]
                               makes a key and prints it, this once
npm run keys -- list          the keys, without the keys themselves
npm run keys -- revoke ID     for good; it stops working within 10 s
npm run keys -- rotate ID [--overlap SECONDS]
                               creates a key that replaces another and prints it, this once; both are valid for
                               SECONDS (3600), then only the new one

  --scope    query (all endpoints), query:<endpoint>, ingest, admin (all); repeated or with commas
  --project  the key sees only these; repeated or with commas`,
  args: oneOfActions('action', {
    create: {
      properties: { name: TEXT, scopes: TEXTS, projects: TEXTS, expires_at: { ...TEXT, nullable: true } },
      required: ['name', 'scopes', 'projects', 'expires_at'],
    },
    list: {},
    revoke: { properties: { id: KEY_ID }, required: ['id'] },
    rotate: {
      properties: { id: KEY_ID, overlapSeconds: { type: 'integer', minimum: 0, maximum: 31_536_000 } },
      required: ['id', 'overlapSeconds'],
    },
  }),
  options: {
    name: { type: 'string' },
    scope: { type: 'string', multiple: true },
    project: { type: 'string', multiple: true },
    expires: { type: 'string' },
    overlap: { type: 'string' },
  },

  readArgs(values, [action, ...rest]) {
    if (action === 'list' && rest.length === 0) return { action };
    if (action === 'revoke' && rest[0] !== undefined && rest.length === 1) return { action, id: rest[0] };
    if (action === 'rotate' && rest[0] !== undefined && rest.length === 1) {
      const overlap = readOverlap({ overlap_seconds: Number(values['overlap'] ?? DEFAULT_OVERLAP_SECONDS) });
      if ('mistakes' in overlap) throw new UsageError(`--overlap ${overlap.mistakes.map((m) => m.message).join('; ')}`);
      return { action, id: rest[0], overlapSeconds: overlap.seconds };
    }
    if (action !== 'create' || rest.length > 0)
      throw new UsageError('Expected one of: create, list, revoke ID, rotate ID');
    const given = {
      name: values['name'],
      scopes: all(values['scope']),
      projects: all(values['project']),
      expires_at: values['expires'] ?? null,
    };
    const read = readNewKey(given, systemClock());
    if ('mistakes' in read)
      throw new UsageError(
        read.mistakes
          .map(
            (m) =>
              `${{ scopes: '--scope', projects: '--project', expires_at: '--expires', name: '--name' }[m.parameter] ?? m.parameter} ${m.message}`,
          )
          .join('; '),
      );
    return {
      action,
      name: read.key.name,
      scopes: read.key.scopes,
      projects: read.key.projects,
      expires_at: typeof given.expires_at === 'string' ? given.expires_at : null,
    };
  },

  async run({ clickhouse }, args) {
    const now = systemClock();
    if (args.action === 'list') return { keys: await listKeys(clickhouse, now) };
    if (args.action === 'rotate') {
      const rotated = await rotateKey(clickhouse, args.id, args.overlapSeconds, now);
      return rotated === undefined ? { unknown: args.id } : { rotated };
    }
    if (args.action === 'revoke')
      return (await revokeKey(clickhouse, args.id, now)) ? { revoked: args.id } : { unknown: args.id };
    const { action: _, ...given } = args;
    const read = readNewKey(given, now);
    if ('mistakes' in read) throw new UsageError(read.mistakes.map((m) => `${m.parameter} ${m.message}`).join('; '));
    return { created: await createKey(clickhouse, read.key, now) };
  },

  print(result) {
    if ('created' in result) return `${result.created.key}\n(shown this once; id ${result.created.id})\n`;
    if ('rotated' in result)
      return `${result.rotated.key}\n(shown this once; id ${result.rotated.id}; the key ${result.rotated.replaces.id} ends at ${result.rotated.replaces.expires_at})\n`;
    if ('revoked' in result) return `revoked ${result.revoked}: it stops working within 10 s\n`;
    if ('unknown' in result) return `there is no key ${result.unknown}\n`;
    if (result.keys.length === 0) return 'no keys besides the first one\n';
    return result.keys
      .map(
        (k) =>
          `${k.id}  ${k.name}  ${k.scopes.join(' ')}${k.projects.length > 0 ? `  projects ${k.projects.join(' ')}` : ''}  made ${k.created_at}  ${k.expires_at === null ? 'no expiry' : `expires ${k.expires_at}`}  ${k.last_used_at === null ? 'never used' : `last used ${k.last_used_at}`}\n`,
      )
      .join('');
  },
  exitCode: (result) => ('unknown' in result ? 1 : 0),
  json: (result) => ('created' in result ? result.created : 'rotated' in result ? result.rotated : result),
};
