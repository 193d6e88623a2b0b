import { weighted } from '../random.ts';
import { platformEvent, selfHostedEvent, type Draft } from './draft.ts';

const drawLevel = weighted({ info: 80, debug: 6, notice: 3, warning: 7, error: 4 });
const modules = [
  ['Realtime.Telemetry.Logger', 'lib/realtime/telemetry/logger.ex', 'handle_event/4'],
  ['RealtimeWeb.RealtimeChannel', 'lib/realtime_web/channels/realtime_channel.ex', 'join/3'],
  ['Realtime.Tenants.Connect', 'lib/realtime/tenants/connect.ex', 'handle_continue/2'],
] as const;

/** One line of the realtime service, about 883 bytes. */
export function realtimeLog(draft: Draft): string {
  const { random, project, micros } = draft;
  const level = draft.incident === undefined ? drawLevel(random) : 'error';
  const [module, file, name] = random.pick(modules);
  const [plain, arity] = name.split('/');
  const message =
    level === 'error'
      ? `Tenant ${project.ref} cannot be reached: connection not available and request was dropped from queue after ${random.below(5000)}ms, ${random.below(200)} clients waiting, retrying in ${random.below(30_000)}ms`
      : `Billing metrics: [:realtime, :rate_counter, :channel, :events] ${random.below(9000)} messages, [:realtime, :rate_counter, :channel, :joins] ${random.below(500)} joins, [:realtime, :rate_counter, :channel, :presence_events] ${random.below(90)} events, [:realtime, :connections] ${random.below(200)} connected of 200, db pool ${random.below(10)} of 10 in use, last poll ${random.below(400)} ms ago`;
  if (draft.selfHosted)
    return selfHostedEvent(
      draft,
      'realtime-dev.supabase-realtime',
      `"${message}"`,
      `{"external_id":"${project.ref}","level":"${level}","project":"${project.ref}"}`,
      false,
    );
  const pid = (): string => `<0.${random.below(90_000)}.${random.below(100)}>`;
  return platformEvent(
    draft,
    `"${message}"`,
    `{"project":"${project.ref}","external_id":"${project.ref}","level":"${level}","context":{"application":"realtime","domain":["elixir"],"file":"${file}","function":"${name}","gl":"${pid()}","line":${1 + random.below(400)},` +
      `"mfa":["${module}","${plain}","${arity}"],"module":"${module}","pid":"${pid()}","time":${micros - random.below(900)},"vm":{"node":"realtime@fdaa:0:7b1c:a7b:${random.hex(4)}:9c1e:${random.hex(4)}:2"}}}`,
    false,
  );
}
