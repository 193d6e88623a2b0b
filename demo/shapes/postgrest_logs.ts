import { platformEvent, selfHostedEvent, type Draft } from './draft.ts';

const lines = ['Schema reloaded', 'Config reloaded', 'Listening', 'Pool exhausted', 'Retrying', 'Connected'];

/** One line of the REST API layer, about 196 bytes. */
export function postgrestLog(draft: Draft): string {
  const { random, project } = draft;
  const message = `"${random.pick(lines)} ${random.below(100_000)}"`;
  return draft.selfHosted
    ? selfHostedEvent(draft, 'supabase-rest', message, `{"host":"${project.ref}"}`, true)
    : platformEvent(draft, message, `{"host":"${project.ref}"}`, true);
}
