import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createLogger } from '../../logger.ts';
import { createConnection, type Connection } from './connection.ts';
import { openServer } from './server.ts';

/**
 * Answers a read with headers and a part of its rows, and is silent then. It knows of no statement, and refuses the
 * questions about some.
 */
const server = createServer((request, response) => {
  let sql = '';
  request.on('data', (chunk: Buffer) => (sql += chunk.toString()));
  request.on('end', () => {
    if (sql.includes('FROM a proxy')) return response.end('<html>We will be back soon</html>');
    if (sql.includes("'refused'"))
      return response.writeHead(500, { 'x-clickhouse-exception-code': '202' }).end('Code: 202. DB::Exception: Busy.');
    if (sql.includes("'silent'")) return request.socket.destroy();
    response.writeHead(200, { 'x-clickhouse-query-id': 'q' });
    if (sql.includes('SELECT slowly')) return setTimeout(() => response.end('whole'), 1_200);
    if (sql.includes('INSERT slowly')) return setTimeout(() => response.end(), 700);
    if (sql.includes('version()')) return setTimeout(() => response.end('25.8.1.1'), 6_000);
    if (!sql.includes('SELECT rows')) return response.end('');
    return response.write('a part');
  });
});
beforeAll(async () => {
  await once(server.listen(0, '127.0.0.1'), 'listening');
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});

const urlOf = (): string => `http://127.0.0.1:${(server.address() as AddressInfo).port}/d`;

const connect = (): Connection =>
  createConnection({
    url: urlOf(),
    logger: createLogger('silent'),
    readers: 1,
    writers: 1,
    requestTimeoutMs: 400,
    sandboxUrl: undefined,
    authorities: undefined,
  });

test.each([
  ['write', 'unknown'],
  ['read', 'not_written'],
] as const)('a 200 that is not from ClickHouse answers no %s', async (channel, outcome) => {
  const connection = connect();
  await expect(connection.request(channel, { sql: 'INSERT FROM a proxy' })).rejects.toMatchObject({
    codeName: 'HTTP_200',
    kind: 'retry',
    outcome,
  });
  await connection.close();
});

test('a write is waited for while the server answers no question about it, twice as often as a read', async () => {
  const connection = connect();
  await connection.request('write', { sql: 'INSERT slowly', queryId: 'silent' });
  await expect(connection.request('read', { sql: 'SELECT slowly', queryId: 'silent' })).rejects.toMatchObject({
    codeName: 'ETIMEDOUT',
  });
  await connection.close();
});

test('a server that wakes up is waited for, also by a command', async () => {
  const opened = await openServer({ url: urlOf(), logger: createLogger('silent'), wait: false });
  expect(opened.version).toBe('25.8.1.1');
  await opened.close();
}, 20_000);

test('a read is waited for while the server is too busy for questions about it', async () => {
  const connection = connect();
  const { body } = await connection.request('read', { sql: 'SELECT slowly', queryId: 'refused' });
  expect(body.toString()).toBe('whole');
  await connection.close();
});

test.each([
  ['it makes no progress', undefined],
  ['its caller leaves', 100],
])('a read whose answer stops in the middle ends when %s', async (_, leavesAfter) => {
  const connection = connect();
  const caller = new AbortController();
  if (leavesAfter !== undefined) setTimeout(() => caller.abort(), leavesAfter);
  const read = connection.request('read', { sql: 'SELECT rows', format: 'TSV', signal: caller.signal });
  await expect(read).rejects.toMatchObject({ kind: 'retry' });
  await connection.close();
});
