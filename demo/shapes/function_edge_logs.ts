import { weighted } from '../random.ts';
import { platformEvent, selfHostedEvent, type Draft } from './draft.ts';

const drawStatus = weighted({
  101: 0.3,
  200: 86,
  201: 2,
  204: 3,
  302: 0.7,
  400: 2,
  401: 1.5,
  404: 0.8,
  422: 0.4,
  429: 0.3,
  500: 1.8,
  502: 0.3,
  503: 0.3,
  504: 0.2,
  546: 0.4,
});
const drawMethod = weighted({ POST: 72, GET: 20, OPTIONS: 8 });
const stderrLines = [
  'serving the request with /home/deno/functions/',
  'worker boot timed out for /home/deno/functions/',
  'early termination has been triggered: isolate: ',
  'Listening on http://localhost:9999/ for ',
];
/**
 * Execution times spread lognormally about the median of the function; the platform ends a run at the maximum,
 * milliseconds.
 */
const EXECUTION_SIGMA = 0.8;
const EXECUTION_MAX_MS = 150_000;

/** One call of a function at its gateway, about 1,078 bytes; self-hosted: plain stderr text. */
export function functionEdgeLog(draft: Draft): string {
  const { random, project, population } = draft;
  const fn = project.drawFunction(random);
  if (draft.selfHosted)
    return selfHostedEvent(
      draft,
      'supabase-edge-functions',
      `"${random.pick(stderrLines)}${fn.slug}"`,
      `{"project_ref":"${project.ref}"}`,
      false,
    );
  const client = population.drawClient(random);
  const method = drawMethod(random);
  const status =
    draft.incident === 'outage' && random.chance(0.7)
      ? '503'
      : draft.incident === 'flood' && random.chance(0.6)
        ? '429'
        : drawStatus(random);
  const host = `${project.ref}.supabase.co`;
  const url = `https://${host}/functions/v1/${fn.slug}`;
  const elapsedMs = Math.min(
    EXECUTION_MAX_MS,
    Math.max(
      1,
      Math.round(random.logNormal(draft.incident === 'slow' ? fn.medianMs * 10 : fn.medianMs, EXECUTION_SIGMA)),
    ),
  );
  // absent or null, both are seen
  const time = draft.timed
    ? `"execution_time_ms":${elapsedMs},`
    : random.chance(0.5)
      ? '"execution_time_ms":null,'
      : '';
  return platformEvent(
    draft,
    `"${method} | ${status} | ${url}"`,
    `{"project_ref":"${project.ref}","function_id":"${fn.id}","deployment_id":"${project.ref}_${fn.id}_${fn.version}","version":"${fn.version}",${time}` +
      `"request":{"method":"${method}","pathname":"/functions/v1/${fn.slug}","search":null,"url":"${url}","host":"${host}","protocol":"https:","port":null,` +
      `"headers":{"accept":"*/*","accept_encoding":"gzip, br","content_length":"${random.below(2000)}","content_type":"application/json","host":"${host}","user_agent":"${client.userAgent}"}},` +
      `"response":{"status_code":${status},"headers":{"content_length":"${random.below(6000)}","content_type":"application/json","server":"cloudflare","vary":"Accept-Encoding","x_sb_edge_region":"${project.region}","x_served_by":"supabase-edge-runtime"}}}`,
    false,
  );
}
