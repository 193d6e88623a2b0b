import { weighted } from '../random.ts';
import { isoSeconds } from '../timestamps.ts';
import { platformEvent, selfHostedEvent, type Draft } from './draft.ts';

const drawAction = weighted({
  token_refreshed: 55,
  login: 25,
  logout: 8,
  user_signedup: 5,
  user_recovery_requested: 3,
  user_modified: 3,
  user_deleted: 1,
});
const drawStatus = weighted({ 200: 88, 204: 3, 400: 4, 401: 1.5, 403: 0.5, 422: 1.5, 429: 0.8, 500: 0.7 });
const paths: Record<string, string> = {
  token_refreshed: '/token',
  login: '/token',
  logout: '/logout',
  user_signedup: '/signup',
  user_recovery_requested: '/recover',
  user_modified: '/user',
  user_deleted: '/admin/users',
};
const providers = ['email', 'email', 'email', 'google', 'github', 'apple', 'phone'];
const names = ['kim', 'robin', 'sam', 'alex', 'noor', 'mika', 'jo', 'toni'];

/** One line of the authentication service, about 1,283 bytes: the message is JSON text, metadata holds it parsed. */
export function authLog(draft: Draft): string {
  const { random, project, population, micros } = draft;
  const action = drawAction(random);
  const client = population.drawClient(random);
  const status =
    draft.incident === 'outage' && random.chance(0.6)
      ? '500'
      : draft.incident === 'flood' && random.chance(0.8)
        ? '429'
        : drawStatus(random);
  const failed = Number(status) >= 400;
  const level = failed ? (status.startsWith('5') ? 'error' : 'warning') : 'info';
  const user = random.uuid();
  const mail = `${random.pick(names)}${random.below(100_000)}@mail.example`;
  const nanoseconds = Math.floor(random.logNormal(draft.incident === 'slow' ? 400_000_000 : 40_000_000, 0.9));
  const error = failed ? `"${status}: Invalid login credentials"` : 'null';
  const path = paths[action] ?? '/token';
  const time = `${isoSeconds(micros)}Z`;
  const request = `${random.hex(16)}-${client.colo}`;
  const trait = `"provider":"${random.pick(providers)}"`;
  const event = `"auth_event":{"action":"${action}","actor_id":"${user}","actor_username":"${mail}","actor_via_sso":false,"log_type":"account","traits":{${trait}}}`;
  const line = (duration: string, code: string): string =>
    `"component":"api","duration":${duration},"level":"${level}","method":"POST","msg":"request completed","path":"${path}","referer":"https://shop.example/sign-in","remote_addr":"${client.ip}","request_id":"${request}","status":${code},"time":"${time}"`;
  if (draft.selfHosted) {
    // older versions of the service write the status and the duration as text
    const members = line(`"${(nanoseconds / 1e6).toFixed(6)}ms"`, `"${status}"`);
    return selfHostedEvent(
      draft,
      'supabase-auth',
      JSON.stringify(`{${event},${members}}`),
      `{${event},${members},"timestamp":"${time}"}`,
      true,
    );
  }
  const members = line(String(nanoseconds), status);
  return platformEvent(
    draft,
    JSON.stringify(`{${members}}`),
    `{"args":[],"auth_event":{"action":"${action}","actor_id":"${user}","actor_name":null,"actor_username":"${mail}","actor_via_sso":false,"log_type":"account","traits":{${trait},"user_email":"${mail}","user_id":"${user}"}},"client_id":null,` +
      `"error":${error},"host":"${project.ref}.supabase.co","metering":${!failed},"project":null,"timestamp":"${time}","user_id":"${user}",${members}}`,
    true,
  );
}
