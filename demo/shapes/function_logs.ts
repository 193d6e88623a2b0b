import { weighted } from '../random.ts';
import { isoMicros } from '../timestamps.ts';
import { platformEvent, selfHostedEvent, type Draft } from './draft.ts';

const drawKind = weighted({ log: 70, boot: 14, shutdown: 13, uncaughtException: 3 });
const drawLevel = weighted({ log: 40, info: 35, debug: 10, warn: 8, error: 7 });
const lines = [
  'receipt sent',
  'cache miss, fetching from origin',
  'processed batch',
  'webhook verified',
  'user not found',
  'retrying after',
  'resized image to',
  'upstream answered',
];

/** One line that a function or its runtime wrote, about 457 bytes. */
export function functionLog(draft: Draft): string {
  const { random, project, micros } = draft;
  const fn = project.drawFunction(random);
  const time = `${isoMicros(micros)}${String(random.below(1000)).padStart(3, '0')}Z`;
  const kind = draft.incident === 'outage' && random.chance(0.5) ? 'uncaughtException' : drawKind(random);
  const level = kind === 'log' ? drawLevel(random) : kind === 'uncaughtException' ? 'error' : 'log';
  const message = {
    log: () => `${random.pick(lines)} ${random.below(100_000)}\\n`,
    boot: () => `booted (time: ${10 + random.below(90)}ms)`,
    shutdown: () => 'shutdown',
    uncaughtException: () =>
      `TypeError: Cannot read properties of undefined (reading 'id')\\n    at Server.<anonymous> (file:///home/deno/functions/${fn.slug}/index.ts:${random.below(300)}:${random.below(80)})\\n`,
  }[kind]();
  if (draft.selfHosted)
    return selfHostedEvent(
      draft,
      'supabase-edge-functions',
      `"${message}"`,
      `{"event_type":"${kind}","level":"${level}","project_ref":"${project.ref}","timestamp":"${time}"}`,
      false,
    );
  return platformEvent(
    draft,
    `"${message}"`,
    `{"project_ref":"${project.ref}","function_id":"${fn.id}","deployment_id":"${project.ref}_${fn.id}_${fn.version}","execution_id":"${random.uuid()}","event_type":"${kind}","level":"${level}","region":"${project.region}","version":"${fn.version}","timestamp":"${time}"}`,
    false,
  );
}
