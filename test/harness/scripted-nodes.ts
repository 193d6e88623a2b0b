import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createTlsServer, Server as TlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { pino } from 'pino';
import { afterEach, beforeEach, expect } from 'vitest';
import type { ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import type { ClusterOptions } from '../../common/clickhouse/cluster/nodes.ts';
import { openCluster } from '../../common/clickhouse/cluster/shards.ts';
import type { Certificate } from './certificates.ts';

// Nodes of a cluster that answer by rules; test/cluster and test/shards have genuine ones.

type Said = string | number | Error | null;
/** A number refuses, and so does an error, in its own words: `Code: 81. DB::Exception: ...`. */
type Answer = Said | (() => Said);
/** The answer to a statement that contains the key: the first that does. */
export type Answers = Record<string, Answer>;

/** What runs after the test, the last one first. */
export const ends: (() => Promise<unknown> | void)[] = [];
/** What was logged in this test. */
export const log: Record<string, unknown>[] = [];

beforeEach(() => {
  log.length = 0;
});
afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end();
});

const read = ({ cert, key }: Certificate) => ({ cert: readFileSync(cert), key: readFileSync(key) });

/** A node of a cluster of one shard, without tables. */
const EMPTY: Answers = {
  'version()': '25.8.2.1\n',
  'system.settings': 'max_threads\n',
  'system.clusters': '{"shards":1}\n',
  getMacro: '{"shard":"s1"}\n',
  'count() FROM system.processes': '0\n',
};

/** Its answers may be changed while it runs. */
export async function startNode(
  answers: Answers = {},
  certificate?: Certificate,
  port = 0,
): Promise<{
  readonly url: string;
  readonly host: string;
  answers: Answers;
  replace(by: Certificate): void;
  stop(): void;
  /** Takes no connection any more, and ends those where nothing runs. */
  shutDown(): void;
}> {
  const answer = (request: IncomingMessage, response: ServerResponse): void => {
    let sql = '';
    request.on('data', (chunk) => (sql += chunk));
    request.on('end', () => {
      const [, answered] = [...Object.entries(node.answers), ...Object.entries(EMPTY), ['', '']].find(([part]) =>
        sql.includes(part),
      )!;
      const said = typeof answered === 'function' ? answered() : answered;
      if (said === null) return;
      if (typeof said === 'string') response.setHeader('x-clickhouse-query-id', 'q').end(said);
      else if (said instanceof Error) response.writeHead(500, { 'x-clickhouse-query-id': 'q' }).end(said.message);
      else
        response
          .writeHead(500, { 'x-clickhouse-exception-code': String(said) })
          .end(`Code: ${said}. DB::Exception: Refused.`);
    });
  };
  const server = certificate === undefined ? createServer(answer) : createTlsServer(read(certificate), answer);
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  const stop = (): void => {
    server.closeAllConnections();
    server.close();
  };
  ends.push(stop);
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const node = {
    url: `${certificate === undefined ? 'http' : 'https'}://u:p@${host}/sluice`,
    host,
    answers,
    stop,
    shutDown: () => void server.close(),
    replace(by: Certificate) {
      if (server instanceof TlsServer) server.setSecureContext(read(by));
      server.closeAllConnections();
    },
  };
  return node;
}

/** A port where nobody listens. */
export const LOST = { url: 'http://u:p@127.0.0.1:1/sluice', host: '127.0.0.1:1' };

export const open = (...nodes: readonly { readonly url: string }[]): Promise<ClickHouse> => openWith({}, ...nodes);

export async function openWith(
  options: Partial<ClusterOptions>,
  ...nodes: readonly { readonly url: string }[]
): Promise<ClickHouse> {
  const logger = pino({ level: 'info' }, { write: (line) => log.push(JSON.parse(line) as Record<string, unknown>) });
  const urls = nodes.map(({ url }) => url);
  const clickhouse = await openCluster({ urls, cluster: 'logs', logger, wait: false, ...options });
  ends.push(() => clickhouse.close());
  return clickhouse;
}
export const replicas = (...active: readonly string[]): Answers => ({
  replica_is_active: `${JSON.stringify({ own: 's1-r1', active })}\n`,
});
export const tables = (...all: readonly { name: string; replicated: string | null }[]): Answers => ({
  create_table_query: all
    .map((one) => `${JSON.stringify({ definition: `CREATE TABLE ${one.name} (n UInt8)`, ...one })}\n`)
    .join(''),
});
export const table = (replicated: string): Answers => tables({ name: 'batches', replicated });
export const notReady = (node: { readonly host: string }, reason: unknown) =>
  expect.objectContaining({ msg: 'clickhouse_node_not_ready', node: node.host, reason });
