import { writeFileSync } from 'node:fs';
import { request as httpRequest, type IncomingHttpHeaders } from 'node:http';
import { join } from 'node:path';
import type { ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import { migrate } from '../../../common/clickhouse/migrations.ts';
import { readSettings, type Settings } from '../../../common/config/settings.ts';
import { createLogger } from '../../../common/logger.ts';
import { createRegistry } from '../../../common/metrics.ts';
import type { SourceName } from '../../../common/sources.ts';
import { startQuery, type QueryOptions, type QueryService } from '../../../services/query/service.ts';
import type { Face } from '../../harness/clickhouse-face.ts';
import { openTestStore } from '../../harness/ingest-store.ts';
import { hasServer, openTestEmbedded, openTestFace } from '../../harness/clickhouse.ts';

/**
 * The query service over a real engine and a real socket; events come in through the store of ingest, without Kafka.
 */
export const API_KEY = 'the-key-of-the-tests';
export const logger = createLogger(process.env['TEST_LOG_LEVEL'] ?? 'silent');

export type Mode = 'embedded' | 'server';
/**
 * The ways to an engine: in this process, and over HTTP to a server (with faults between). A project with a kind of
 * server asks that kind alone: the embedded engine is the same in all of them.
 */
export const modes: readonly Mode[] = hasServer() ? ['server'] : ['embedded', 'server'];

export interface Engine {
  readonly clickhouse: ClickHouse;
  readonly dataDir: string;
  /** in server mode: the way to the engine, where faults can be injected */
  readonly face: Face | undefined;
  close(): Promise<void>;
}

/** An engine with the schema in a folder of its own. */
export async function openEngine(
  mode: Mode = 'embedded',
  options: Parameters<typeof openTestFace>[0] = {},
): Promise<Engine> {
  const faced = mode === 'server' ? await openTestFace(options) : undefined;
  const opened = faced ?? (await openTestEmbedded());
  await migrate(opened.clickhouse, logger);
  return {
    clickhouse: opened.clickhouse,
    dataDir: opened.env.DATA_DIR,
    face: faced?.face,
    close: () => opened.close(),
  };
}

/**
 * Stores messages as one batch of a partition, evaluated at `now` (unix milliseconds). Messages without a timestamp of
 * their own get it from the record.
 */
export async function store(
  clickhouse: ClickHouse,
  source: SourceName,
  messages: readonly string[],
  at: { now: number; partition?: number; first?: number; recordTime?: number },
): Promise<void> {
  const { now, partition = 0, first = 0, recordTime = now } = at;
  const records = messages.map((message, i) => ({
    offset: first + i,
    time: recordTime,
    key: null,
    value: Buffer.from(message),
    headers: [],
  }));
  await openTestStore(clickhouse, { source, partition }).insertBatch({ incarnation: 1, evaluatedAt: now, records });
}

export type TestSettings = Partial<Record<keyof Settings, string>>;

/** Resolves once the service answers, or has failed; with a `schema` at once. */
export async function startService(
  clickhouse: ClickHouse,
  dataDir: string,
  settings: TestSettings = {},
  options: Partial<QueryOptions> = {},
): Promise<QueryService> {
  const service = await startQuery({
    clickhouse,
    settings: readSettings({ API_KEY, PORT: '0', DATA_DIR: dataDir, ...settings }),
    logger,
    registry: createRegistry(),
    ...options,
  });
  const ready = service.ready.catch(() => undefined);
  if (options.schema === undefined) await ready;
  return service;
}

export interface Reply {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
  readonly text: string;
  /** the rows of a success */
  readonly rows: Row[];
  /** the error of a refusal */
  readonly error: ErrorBody;
}

export type Row = Record<string, unknown>;
interface ErrorBody {
  readonly code: string;
  readonly message: string;
  readonly status: number;
  readonly errors?: { parameter: string; message: string }[];
  readonly request_id: string;
}

/**
 * One request with exactly these headers: nothing is added, nothing decompressed, the path goes out as it is written.
 */
export async function send(
  address: string,
  path: string,
  options: { method?: string; headers?: Record<string, string>; body?: string | Buffer; signal?: AbortSignal } = {},
): Promise<Reply> {
  return await new Promise((resolve, reject) => {
    const { hostname, port } = new URL(address);
    const request = httpRequest(
      {
        hostname,
        port,
        path,
        method: options.method ?? 'GET',
        headers: {
          ...options.headers,
          ...(options.body !== undefined && { 'content-length': String(Buffer.byteLength(options.body)) }),
        },
        agent: false,
        ...(options.signal && { signal: options.signal }),
      },
      (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('error', reject);
        response.on('end', () => {
          const body = Buffer.concat(chunks);
          resolve({
            status: response.statusCode ?? 0,
            headers: response.headers,
            body,
            get text() {
              return body.toString('utf8');
            },
            get rows() {
              return (JSON.parse(this.text) as { result: Row[] }).result;
            },
            get error() {
              return (JSON.parse(this.text) as { error: ErrorBody }).error;
            },
          });
        });
      },
    );
    request.on('error', reject);
    request.end(options.body);
  });
}

export interface Counted extends ClickHouse {
  /** statements that were read with an endpoint's parameters, and not for keys or checks */
  readonly queries: () => number;
  /** From now on these queries wait, before the engine sees them, until what is returned is called. */
  readonly hold: () => () => void;
}

/** The same engine, counting the queries of endpoints. */
export function counting(clickhouse: ClickHouse): Counted {
  let queries = 0;
  let gate = Promise.resolve();
  return {
    ...clickhouse,
    queries: () => queries,
    hold() {
      const { promise, resolve } = Promise.withResolvers<void>();
      gate = promise;
      return resolve;
    },
    read: async (read) => {
      if (read.format === 'JSONCompact') {
        queries++;
        await gate;
      }
      return await clickhouse.read(read);
    },
  };
}

let endpoints = 0;

/** Writes an endpoint of one parameter, `project`, into a folder; `more` are lines of its definition. */
export function writeEndpoint(folder: string, name: string, sql: string, more = ''): void {
  writeFileSync(join(folder, `${name}.sql`), sql);
  writeFileSync(
    join(folder, `${name}.yaml`),
    `id: 00000000-0000-4000-8000-${String(++endpoints).padStart(12, '0')}
name: ${name}
description: an endpoint of the tests
project: { parameter: project, match: exact }
parameters:
  required: [project]
  properties:
    project: { description: the project }
columns:
  - { name: n, render: json, description: what it answers }
${more}`,
  );
}

/** Runs until something ends it; a part of the engine's time limit at most. */
export const ENDLESS =
  'SELECT max(sipHash64(number, @project)) AS n FROM (SELECT number FROM system.numbers LIMIT 1000000000000)';

/** A call with the key of the tests. */
export async function call(
  service: Pick<QueryService, 'address'>,
  endpoint: string,
  query: Record<string, string> = {},
  headers: Record<string, string> = {},
): Promise<Reply> {
  return await send(service.address, `/api/endpoints/${endpoint}?${new URLSearchParams(query).toString()}`, {
    headers: { 'x-api-key': API_KEY, ...headers },
  });
}
