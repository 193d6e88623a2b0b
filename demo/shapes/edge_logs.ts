import { isoSeconds } from '../timestamps.ts';
import { weighted, weightedIndex, type Random } from '../random.ts';
import { drawAddress } from '../urls.ts';
import { selfHostedEvent, type Draft } from './draft.ts';

const readStatus = weighted({
  200: 84,
  206: 2,
  304: 4,
  400: 2,
  401: 2.5,
  403: 0.8,
  404: 2.5,
  406: 0.5,
  429: 0.4,
  500: 0.5,
  502: 0.2,
  503: 0.2,
  504: 0.1,
  522: 0.1,
});
const writeStatus = weighted({
  200: 38,
  201: 42,
  204: 11,
  400: 2.5,
  401: 2,
  403: 0.8,
  409: 1.6,
  422: 0.8,
  429: 0.4,
  500: 0.5,
  503: 0.2,
});
const websocketStatus = weighted({ 101: 95, 401: 3, 429: 1, 503: 0.5 });
const outageStatus = weighted({ 500: 25, 502: 20, 503: 40, 504: 10, 521: 5 });
const methods = ['GET', 'POST', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS'] as const;
const drawMethod = weightedIndex([66, 19, 6, 2, 1, 6]);
const contentTypes = [
  'application/json; charset=utf-8',
  'application/json; charset=utf-8',
  'application/json',
  'image/png',
  'text/plain; charset=utf-8',
  'application/vnd.pgrst.object+json; charset=utf-8',
];
const cacheStatus = ['DYNAMIC', 'DYNAMIC', 'DYNAMIC', 'HIT', 'MISS', 'REVALIDATED'];
/** median time until the origin has answered, milliseconds, and its spread */
const ORIGIN_MEDIAN_MS = 42;
const ORIGIN_SIGMA = 1.1;

/**
 * `"Sun, 01 Mar 2026 09:00:00 GMT"` changes once a second: the last one is kept, as making it costs as much as the rest
 * of the event.
 */
let dateSecond = -1;
let dateText = '';
function httpDate(micros: number): string {
  const second = Math.floor(micros / 1_000_000);
  if (second !== dateSecond) {
    dateSecond = second;
    dateText = new Date(second * 1000).toUTCString();
  }
  return dateText;
}

function drawStatus(draft: Draft, method: string, websocket: boolean): string {
  const { random, incident } = draft;
  if (incident === 'outage' && random.chance(0.7)) return outageStatus(random);
  if (incident === 'flood' && random.chance(0.8)) return '429';
  if (websocket) return websocketStatus(random);
  return method === 'POST' || method === 'PATCH' || method === 'DELETE' ? writeStatus(random) : readStatus(random);
}

const contentLength = (random: Random): number => Math.floor(random.logNormal(900, 1.6));

/** One request at the edge, about 2,275 bytes; self-hosted about 690 and without url, host and search. */
export function edgeLog(draft: Draft): string {
  const { random, project, population, micros } = draft;
  const { host, path, search } = drawAddress(draft.urlShape, project, population, random);
  const client = population.drawClient(random);
  const websocket = path.startsWith('/realtime');
  const method = websocket ? 'GET' : (methods[drawMethod(random)] as string);
  const status = drawStatus(draft, method, websocket);
  if (draft.selfHosted) {
    const target = path + search;
    const message = JSON.stringify(
      `${client.ip} - - [${isoSeconds(micros)}+00:00] "${method} ${target} HTTP/1.1" ${status} ${contentLength(random)} "-" "${client.userAgent}"`,
    );
    // gateways write lines that are no requests too: then method, path and protocol are null
    const request = random.chance(0.02)
      ? '"method":null,"path":null,"protocol":null'
      : `"method":"${method}","path":"${target}","protocol":"HTTP/1.1"`;
    return selfHostedEvent(
      draft,
      'supabase-kong',
      message,
      `{"request":{"headers":{"cf_connecting_ip":"${client.ip}",${client.referer},"user_agent":"${client.userAgent}"},${request}},"response":{"status_code":${status}}}`,
      true,
    );
  }
  const url = `https://${host}${path}${search}`;
  const ray = random.hex(16);
  const originMs = Math.ceil(
    random.logNormal(draft.incident === 'slow' ? ORIGIN_MEDIAN_MS * 10 : ORIGIN_MEDIAN_MS, ORIGIN_SIGMA),
  );
  return (
    `{${draft.id}${draft.timestamp}"event_message":"${method} | ${status} | ${client.ip} | ${ray} | ${url} | ${client.userAgent}","project":"${project.ref}","metadata":{"request":{` +
    `"method":"${method}","path":"${path}","search":${search === '' ? 'null' : `"${search}"`},"url":"${url}","host":"${host}","protocol":"https:","port":null,` +
    `"headers":{"cf_connecting_ip":"${client.ip}","cf_ipcountry":"${client.country}","cf_ray":"${ray}","host":"${host}",${client.referer},${client.lastHeaders}},${client.cf}},` +
    `"response":{"status_code":${status},"origin_time":${originMs},"headers":{"cf_cache_status":"${random.pick(cacheStatus)}","cf_ray":"${ray}-${client.colo}","content_length":"${contentLength(random)}",` +
    `"content_type":"${random.pick(contentTypes)}","date":"${httpDate(micros)}","sb_gateway_mode":null,"sb_gateway_version":"1","transfer_encoding":null}},${client.worker}}}`
  );
}
