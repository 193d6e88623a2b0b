import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createLogger } from '../../logger.ts';
import { createConnection } from './connection.ts';

/** Answers a read with headers and a part of its rows, and is silent then. It knows of no statement. */
const server = createServer((request, response) => {
  let sql = '';
  request.on('data', (chunk: Buffer) => (sql += chunk.toString()));
  request.on('end', () => {
    if (!sql.includes('SELECT rows')) return response.end('');
    response.writeHead(200);
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

test.each([
  ['it makes no progress', undefined],
  ['its caller leaves', 100],
])('a read whose answer stops in the middle ends when %s', async (_, leavesAfter) => {
  const connection = createConnection({
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/d`,
    logger: createLogger('silent'),
    readers: 1,
    writers: 1,
    requestTimeoutMs: 400,
    sandboxUrl: undefined,
    authorities: undefined,
  });
  const caller = new AbortController();
  if (leavesAfter !== undefined) setTimeout(() => caller.abort(), leavesAfter);
  const read = connection.request('read', { sql: 'SELECT rows', format: 'TSV', signal: caller.signal });
  await expect(read).rejects.toMatchObject({ kind: 'retry' });
  await connection.close();
});
