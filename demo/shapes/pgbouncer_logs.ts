import { platformEvent, selfHostedEvent, type Draft } from './draft.ts';

const users = ['authenticator', 'postgres', 'supabase_auth_admin'];
const ends = ['login attempt: tls=yes', 'closing: client close', 'new connection', 'pooler error: timeout'];

/** One line of the connection pooler, about 257 bytes. */
export function pgbouncerLog(draft: Draft): string {
  const { random, project } = draft;
  const message = `"C-0x55${random.hex(8)}: postgres/${random.pick(users)}@10.${random.below(256)}.${random.below(256)}.${random.below(256)}:${32_768 + random.below(28_000)} ${random.pick(ends)}"`;
  return draft.selfHosted
    ? selfHostedEvent(draft, 'supabase-pooler', message, `{"host":"${project.ref}"}`, true)
    : platformEvent(draft, message, `{"host":"db-${project.ref}"}`, true);
}
