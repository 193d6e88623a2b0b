import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createTlsServer, Server as TlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { ClusterOptions } from './nodes.ts';
import { openCluster } from './shards.ts';
import { everywhere, fresh, select, type ClickHouse } from '../clickhouse.ts';
import { assertEmpty } from '../database.ts';
import { makeCertificate, type Certificate } from '../../../test/harness/certificates.ts';
import { temporaryFolder } from '../../../test/harness/temporary-folder.ts';

// Guarantee: a process uses only nodes that it can trust to be whole, and a node that is not stops no other one. Nodes
// here answer by rules; test/cluster and test/shards have genuine ones.

/** Lines, the number of an error of ClickHouse, or null for no answer. */
type Answer = string | number | null;
/** The answer to a statement that contains the key: the first that does. */
type Answers = Record<string, Answer>;

const ends: (() => Promise<unknown> | void)[] = [];
let log: Record<string, unknown>[];

beforeEach(() => {
  log = [];
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
  'system.macros': '{"macro":"shard"}\n{"macro":"replica"}\n',
  'count() FROM system.processes': '0\n',
};

/** Its answers may be changed while it runs. */
async function startNode(
  answers: Answers = {},
  certificate?: Certificate,
  port = 0,
): Promise<{
  readonly url: string;
  readonly host: string;
  answers: Answers;
  replace(by: Certificate): void;
  stop(): void;
}> {
  const answer = (request: IncomingMessage, response: ServerResponse): void => {
    let sql = '';
    request.on('data', (chunk) => (sql += chunk));
    request.on('end', () => {
      const [, said] = [...Object.entries(node.answers), ...Object.entries(EMPTY), ['', '']].find(([part]) =>
        sql.includes(part),
      )!;
      if (said === null) return;
      if (typeof said === 'string') response.end(said);
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
    replace(by: Certificate) {
      if (server instanceof TlsServer) server.setSecureContext(read(by));
      server.closeAllConnections();
    },
  };
  return node;
}

/** A port where nobody listens. */
const LOST = { url: 'http://u:p@127.0.0.1:1/sluice', host: '127.0.0.1:1' };

const open = (...nodes: readonly { readonly url: string }[]): Promise<ClickHouse> => openWith({}, ...nodes);

async function openWith(
  options: Partial<ClusterOptions>,
  ...nodes: readonly { readonly url: string }[]
): Promise<ClickHouse> {
  const logger = pino({ level: 'info' }, { write: (line) => log.push(JSON.parse(line) as Record<string, unknown>) });
  const urls = nodes.map(({ url }) => url);
  const clickhouse = await openCluster({ urls, cluster: 'logs', logger, wait: false, ...options });
  ends.push(() => clickhouse.close());
  return clickhouse;
}

describe('a node that does not know the cluster', () => {
  test('stops the start, because the process would read one shard only', async () => {
    const nodes = [await startNode({ 'system.clusters': '{"shards":0}\n' }), await startNode()];
    await expect(open(...nodes)).rejects.toMatchObject({
      name: 'StartError',
      exitCode: 78,
      message: expect.stringContaining('remote_servers has no cluster logs'),
    });
    // a user who may not read what else is absent
    nodes[0]!.answers['system.macros'] = 497;
    nodes[1]!.answers['system.macros'] = 497;
    await expect(open(...nodes)).rejects.toMatchObject({
      name: 'StartError',
      exitCode: 78,
      message: expect.stringMatching(/^remote_servers of .* has no cluster logs$/),
    });
  });

  test('ends no process that runs; another number of shards does', async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
    ends.push(() => void vi.useRealTimers());
    const node = await startNode();
    const clickhouse = await open(node);
    const look = async (shards: number): Promise<void> => {
      node.answers = { 'system.clusters': `{"shards":${shards}}\n` };
      vi.advanceTimersByTime(10_000);
      await clickhouse.ping();
    };
    await look(0);
    await new Promise((resolve) => setTimeout(resolve, 100));
    await expect(clickhouse.ping()).resolves.toBeUndefined();
    await look(2);
    await vi.waitFor(() => expect(log).toContainEqual(expect.objectContaining({ msg: 'shards_changed', now: 2 })));
    await expect(clickhouse.ping()).rejects.toThrow('has 2 shards now, and had 1');
  });
});

const replicas = (...active: readonly string[]): Answers => ({
  'system.replicas': `${JSON.stringify({ own: 's1-r1', active })}\n`,
});
const table = (uuid: string): Answers => ({
  create_table_query: `${JSON.stringify({ name: 'batches', definition: 'CREATE TABLE batches (n UInt8)', replicated: uuid })}\n`,
});
const notReady = (node: { readonly host: string }, reason: unknown) =>
  expect.objectContaining({ msg: 'clickhouse_node_not_ready', node: node.host, reason });

describe('a lost node', () => {
  test.each([
    ['no table can tell whether it has left', {}, false],
    ['Keeper holds its session', replicas('s1-r1', 's1-r2'), false],
    ['its session has ended', replicas('s1-r1'), true],
    ['the node that answers has no session either', replicas(), false],
  ])('is left out of what every node must do only if its session has ended: %s', async (_, answers, isLeftOut) => {
    const clickhouse = await open(await startNode(answers), LOST);
    for (const work of [
      () => clickhouse.killInsert('x'),
      () => assertEmpty(everywhere(clickhouse), 'a backup that is restored'),
    ])
      if (isLeftOut) await expect(work()).resolves.toBeUndefined();
      else await expect(work()).rejects.toMatchObject({ kind: 'retry', message: expect.stringContaining(LOST.host) });
  });
});

test('a node that lags is waited for by what asks all nodes for fresh rows', async () => {
  const [first, lagging] = [
    await startNode({ ...replicas('s1-r1', 's1-r2'), 'SELECT 2': '{"n":2}\n' }),
    await startNode(),
  ];
  lagging.answers = { 'SYSTEM SYNC REPLICA `sluice`.`batches`': 159, 'SELECT 2': '{"n":2}\n' };
  const reader = everywhere(fresh(await open(first, lagging), ['batches']));
  const reason = { kind: 'retry', codeName: 'REPLICA_LAGS', message: expect.stringContaining(lagging.host) };
  await expect(select(reader, 'SELECT 2')).rejects.toMatchObject(reason);
  lagging.answers = first.answers;
  expect(await select(reader, 'SELECT 2')).toEqual([{ n: 2 }, { n: 2 }]);
});

test('a node that refused connections is used as soon as it takes them', async () => {
  const away = await startNode();
  away.stop();
  const first = await startNode(replicas('s1-r1'));
  const clickhouse = await open(first, away);
  // asks all nodes
  await clickhouse.killInsert('x');
  await startNode({}, undefined, Number(new URL(away.url).port));
  first.stop();
  await expect(clickhouse.ping()).resolves.toBeUndefined();
});

describe('a node whose packets vanish', () => {
  const took = async (work: Promise<unknown>): Promise<number> => {
    const since = performance.now();
    await work;
    return performance.now() - since;
  };

  test('delays a takeover by one question', { timeout: 90_000 }, async () => {
    const nodes = [await startNode(replicas('s1-r1')), await startNode()] as const;
    const clickhouse = await open(...nodes);
    await clickhouse.killInsert('x');
    nodes[1].answers = { '': null };
    expect(await took(clickhouse.killInsert('x'))).toBeLessThan(8_000);
  });

  test('before it was used delays the first takeover, and none for some seconds', { timeout: 150_000 }, async () => {
    const clickhouse = await open(await startNode(replicas('s1-r1')), await startNode({ '': null }));
    expect(await took(clickhouse.killInsert('x'))).toBeLessThan(8_000);
    expect(await took(clickhouse.killInsert('x'))).toBeLessThan(1_000);
  });
});

test('an insert that ignores its end is awaited, though the server answers no KILL meanwhile', async () => {
  const node = await startNode({ 'KILL QUERY': null, 'FROM system.processes': '1' });
  const clickhouse = await open(node);
  const killed = clickhouse.killInsert('x');
  setTimeout(() => (node.answers = { 'FROM system.processes': '0' }), 6_000);
  await expect(killed).resolves.toBeUndefined();
}, 20_000);

test('what our user may not end is said at once', async () => {
  const clickhouse = await open(await startNode({ 'KILL QUERY': 497, 'FROM system.processes': 497 }));
  await expect(clickhouse.killInsert('x')).rejects.toMatchObject({ codeName: 'ACCESS_DENIED' });
});

describe('tables of one name that are no replicas of each other', () => {
  test('stop the start, with the names of table and nodes', async () => {
    const nodes = [await startNode(table('a')), await startNode(table('b'))] as const;
    await expect((await open(...nodes)).cluster!.complete()).rejects.toMatchObject({
      name: 'StartError',
      message: expect.stringMatching(new RegExp(`batches of ${nodes[1].host} .* of ${nodes[0].host}`)),
    });
  });

  test('are logged while the process runs, and then a node without tables gets none of them', async () => {
    const nodes = [await startNode(table('a')), await startNode(table('a')), await startNode(table('a'))] as const;
    const { cluster } = await open(...nodes);
    await cluster!.complete();
    nodes[1].answers = table('b');
    nodes[2].answers = {};
    await cluster!.complete();
    expect(log).toContainEqual(notReady(nodes[1], expect.stringContaining('batches')));
    expect(log).not.toContainEqual(expect.objectContaining({ msg: 'clickhouse_node_completed' }));
    nodes[1].answers = table('a');
    await cluster!.complete();
    expect(log).toContainEqual(expect.objectContaining({ msg: 'clickhouse_node_completed', node: nodes[2].host }));
  });
});

describe('a node that is half set up', () => {
  const KILL = 'FROM system.processes';

  test.each([
    ['its user may not create', { CREATE: 497 }],
    ['Keeper still knows its replica', { CREATE: 253 }],
    ['its user may not read', { create_table_query: 497 }],
    ['its database was dropped', { create_table_query: 81 }],
    ['its database is missing', { 'SELECT version()': 81 }],
  ])('is named, and the others are completed: %s', async (_, answers: Answers) => {
    const nodes = [await startNode(table('a')), await startNode(answers), await startNode()] as const;
    const { cluster } = await open(...nodes);
    await cluster!.complete();
    expect(log).toContainEqual(notReady(nodes[1], expect.any(String)));
    expect(log).toContainEqual(
      expect.objectContaining({ msg: 'clickhouse_node_completed', node: nodes[2].host, tables: 1 }),
    );
  });

  test('stops no takeover if it has no session in Keeper, and delays it if it has one', async () => {
    const nodes = [await startNode(replicas('s1-r1')), await startNode({ [KILL]: 497 })] as const;
    const clickhouse = await open(...nodes);
    await expect(clickhouse.killInsert('x')).resolves.toBeUndefined();
    expect(log).toContainEqual(notReady(nodes[1], expect.stringContaining('497')));
    // an insert may run there, of a user who has lost his rights since
    nodes[0].answers = replicas('s1-r1', 's1-r2');
    await expect(clickhouse.killInsert('x')).rejects.toMatchObject({
      kind: 'retry',
      message: expect.stringContaining(nodes[1].host),
    });
  });

  test('ends what it is asked for if there is no other one', async () => {
    const answers = { [KILL]: 497, create_table_query: 497 };
    const clickhouse = await open(await startNode(answers), await startNode(answers));
    for (const work of [() => clickhouse.killInsert('x'), () => clickhouse.cluster!.complete()])
      await expect(work()).rejects.toMatchObject({ codeName: 'ACCESS_DENIED', kind: 'fatal' });
  });

  test('ends no process while the others do not answer', async () => {
    const clickhouse = await open(await startNode({ [KILL]: 497, create_table_query: 497 }), LOST);
    for (const work of [() => clickhouse.killInsert('x'), () => clickhouse.cluster!.complete()])
      await expect(work()).rejects.toMatchObject({ codeName: 'ECONNREFUSED', kind: 'retry' });
  });
});

describe('a node that cannot be used', () => {
  test('at the start is named, and another one takes its place', async () => {
    const nodes = [await startNode({ 'version()': 81 }), await startNode({ 'version()': 516 })] as const;
    const { cluster } = await open(...nodes, LOST, await startNode());
    await cluster!.check();
    expect(log).toContainEqual(notReady(nodes[0], expect.stringContaining('has no database sluice')));
    expect(log).toContainEqual(notReady(nodes[1], expect.stringContaining('refuses the user u')));
    await expect(open(...nodes, LOST)).rejects.toMatchObject({
      name: 'StartError',
      message: expect.stringMatching(/has no database sluice; create it/),
    });
  });

  test('because it has lost Keeper stops no start, and is waited for if it is the only one', async () => {
    const nodes = [await startNode({ 'system.zookeeper': 999 }), await startNode()] as const;
    await expect((await open(...nodes)).cluster!.check()).resolves.toBeUndefined();
    const alone = (await open(nodes[0])).cluster!;
    await expect(alone.check()).rejects.toMatchObject({ name: 'StartError', exitCode: 1 });
    const checking = (await openWith({ wait: true }, nodes[0])).cluster!.check();
    await vi.waitFor(() => expect(log).toContainEqual(expect.objectContaining({ msg: 'waiting_for_clickhouse' })));
    nodes[0].answers = {};
    await expect(checking).resolves.toBeUndefined();
    // what is absent is a mistake
    nodes[0].answers = { 'system.zookeeper': 999, 'system.distributed_ddl_queue': 139 };
    await expect(alone.check()).rejects.toMatchObject({ name: 'StartError', exitCode: 78 });
  });

  const insert = (clickhouse: ClickHouse): Promise<void> =>
    clickhouse.insertRows({ table: 't', columns: ['n'], pieces: [Buffer.of(1)] });

  test.each([
    ['its user', 516],
    ['its database', 81],
  ])('any more because it has lost %s is left for the next one', async (_, code) => {
    const nodes = [await startNode(), await startNode({ 'SELECT 2': '2' })] as const;
    const [reading, writing] = [await open(...nodes), await open(...nodes)];
    nodes[0].answers = { '': code };
    const { body } = await reading.read({ sql: 'SELECT 2', format: 'TSV' });
    expect(body.toString()).toBe('2');
    await expect(insert(writing)).rejects.toMatchObject({ kind: 'retry', outcome: 'not_written' });
    await expect(insert(writing)).resolves.toBeUndefined();
  });

  test('any more because its certificate is not valid any more is left for the next one', async () => {
    const folder = temporaryFolder();
    ends.push(() => folder.remove());
    const authority = makeCertificate(folder.path, 'authority');
    const [valid, invalid] = [makeCertificate(folder.path, 'valid', authority), makeCertificate(folder.path, 'other')];
    const nodes = [await startNode({}, valid), await startNode({ 'SELECT 2': '2' }, valid)] as const;
    const options = { authorities: readFileSync(authority.cert) };
    const [reading, writing] = [await openWith(options, ...nodes), await openWith(options, ...nodes)];
    nodes[0].replace(invalid);
    const { body } = await reading.read({ sql: 'SELECT 2', format: 'TSV' });
    expect(body.toString()).toBe('2');
    await expect(insert(writing)).rejects.toMatchObject({ kind: 'retry', outcome: 'not_written' });
    await expect(insert(writing)).resolves.toBeUndefined();
  });
});
