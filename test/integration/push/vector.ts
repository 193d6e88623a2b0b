import { gzipSync } from 'node:zlib';

/**
 * Requests as Vector's http sink forms them, by its source (src/sinks/http/{config,encoder,service}.rs, src/http.rs):
 * `encoding.codec: json` without `framing` makes a list, the bytes `[`, events joined by `,`, `]`; with
 * `framing.method: newline_delimited` an event per line without a last newline; payload_prefix and payload_suffix wrap
 * the list. Keys of an event are sorted, times are RFC 3339. Custom headers of `request.headers` come after the
 * content's own, then those of its HTTP client. The events are those of the usual self-hosted configuration, with its
 * aliases in `?source_name=`.
 */
interface VectorSink {
  readonly name: string;
  readonly path: string;
  readonly compression?: 'gzip';
  readonly framing?: 'newline_delimited';
  readonly wrapped?: readonly [prefix: string, suffix: string];
  readonly events: readonly string[];
}

const time = '2026-03-01T09:00:00.123456789Z';

/** `at`: an RFC 3339 time for all events. */
export const vectorSinks = (at: string): VectorSink[] =>
  sinks.map((sink) => ({ ...sink, events: sink.events.map((event) => event.replaceAll(time, at)) }));

const sinks: readonly VectorSink[] = [
  {
    name: 'logflare_kong',
    path: '/api/logs?source_name=cloudflare.logs.prod',
    events: [
      `{"appname":"supabase-kong","event_message":"172.18.0.1 - - [01/Mar/2026:09:00:00 +0000] \\"GET /rest/v1/todos?select=* HTTP/1.1\\" 200 53 \\"-\\" \\"curl/8.5.0\\"","metadata":{"request":{"headers":{"cf_connecting_ip":"172.18.0.1","referer":null,"user_agent":"curl/8.5.0"},"method":"GET","path":"/rest/v1/todos?select=*","protocol":"HTTP/1.1"},"response":{"status_code":200}},"project":"default","timestamp":"${time}"}`,
      `{"appname":"supabase-kong","event_message":"2026/03/01 09:00:00 [error] 1127#0: *1 connect() failed","metadata":{"request":{"headers":{"cf_connecting_ip":"172.18.0.1"},"host":"localhost:8000","method":"GET","path":"/auth/v1/health","protocol":"HTTP/1.1"},"response":{"status_code":200}},"project":"default","severity":"error","timestamp":"${time}"}`,
    ],
  },
  {
    name: 'logflare_auth',
    path: '/api/logs?source_name=gotrue.logs.prod',
    compression: 'gzip',
    events: [
      `{"appname":"supabase-auth","event_message":"{\\"level\\":\\"info\\",\\"msg\\":\\"request completed\\",\\"time\\":\\"2026-03-01T09:00:00Z\\"}","metadata":{"level":"info","msg":"request completed","time":"2026-03-01T09:00:00Z","timestamp":"2026-03-01T09:00:00Z"},"project":"default","timestamp":"${time}"}`,
    ],
  },
  {
    name: 'logflare_rest',
    path: '/api/logs?source_name=postgREST.logs.prod',
    framing: 'newline_delimited',
    events: [1, 2].map(
      (n) =>
        `{"appname":"supabase-rest","event_message":"Attempt ${n} to connect","metadata":{"host":"default"},"project":"default","timestamp":"${time}"}`,
    ),
  },
  {
    name: 'logflare_realtime',
    path: '/api/logs?source_name=realtime.logs.prod',
    framing: 'newline_delimited',
    compression: 'gzip',
    events: [
      `{"appname":"realtime-dev.supabase-realtime","event_message":"Running","metadata":{"external_id":"default","level":"info","project":"default"},"timestamp":"${time}"}`,
    ],
  },
  {
    name: 'logflare_db',
    path: '/api/logs?source_name=postgres.logs',
    wrapped: ['{"batch":', '}'],
    events: [
      `{"appname":"supabase-db","event_message":"LOG:  checkpoint starting: time","metadata":{"host":"db-default","parsed":{"error_severity":"LOG","timestamp":"${time}"}},"project":"default","timestamp":"${time}"}`,
    ],
  },
  {
    name: 'logflare_functions',
    path: '/api/logs?source_name=deno-relay-logs',
    events: [
      `{"appname":"supabase-edge-functions","event_message":"serving the request with /home/deno/functions/hello","metadata":{"project_ref":"default"},"timestamp":"${time}"}`,
    ],
  },
  {
    name: 'logflare_storage',
    path: '/api/logs?source_name=storage.logs.prod.2',
    events: [
      `{"appname":"supabase-storage","event_message":"[Server] Started","metadata":{"context":[{"host":"storage","pid":1}],"level":"info","project":"default","tenantId":"default","timestamp":"${time}"},"timestamp":"${time}"}`,
    ],
  },
];

/**
 * The bytes that go over the socket; `healthcheck.uri` makes a HEAD of its own, without the headers of
 * `request.headers`.
 */
export function vectorRequest(sink: VectorSink, host: string, key: string): Buffer {
  const [prefix, suffix] = sink.wrapped ?? ['', ''];
  const plain = Buffer.from(
    sink.framing === undefined ? `${prefix}[${sink.events.join(',')}]${suffix}` : sink.events.join('\n'),
  );
  const body = sink.compression === undefined ? plain : gzipSync(plain);
  const head = [
    `POST ${sink.path} HTTP/1.1`,
    `content-type: ${sink.framing === undefined ? 'application/json' : 'application/x-ndjson'}`,
    ...(sink.compression === undefined ? [] : [`content-encoding: ${sink.compression}`]),
    `x-api-key: ${key}`,
    'user-agent: Vector/0.28.1 (x86_64-unknown-linux-musl)',
    'accept-encoding: identity',
    `host: ${host}`,
    `content-length: ${body.length}`,
  ];
  return Buffer.concat([Buffer.from(`${head.join('\r\n')}\r\n\r\n`), body]);
}

export const vectorHealthcheck = (host: string): Buffer =>
  Buffer.from(
    `HEAD /health HTTP/1.1\r\nuser-agent: Vector/0.28.1 (x86_64-unknown-linux-musl)\r\naccept-encoding: identity\r\nhost: ${host}\r\n\r\n`,
  );
