import { readFileSync } from 'node:fs';
import { pino } from 'pino';
import { describe, expect, test, vi } from 'vitest';
import { everywhere, fresh, select, type ClickHouse } from '../clickhouse.ts';
import { assertEmpty } from '../database.ts';
import { createNodeList } from './node-list.ts';
import { makeCertificate } from '../../../test/harness/certificates.ts';
import {
  ends,
  log,
  LOST,
  notReady,
  open,
  openWith,
  replicas,
  startNode,
} from '../../../test/harness/scripted-nodes.ts';
import { temporaryFolder } from '../../../test/harness/temporary-folder.ts';

// Guarantee: a process uses only nodes that it can trust to be whole, and a node that is not stops no other one.

describe('a node that does not know the cluster', () => {
  test('stops the start, because the process would read one shard only', async () => {
    const nodes = [await startNode({ 'system.clusters': '{"shards":0}\n' }), await startNode()];
    await expect(open(...nodes)).rejects.toMatchObject({
      name: 'StartError',
      exitCode: 78,
      message: expect.stringContaining('remote_servers has no cluster logs'),
    });
    // a user who may not read what else is absent
    nodes[0]!.answers['system.zookeeper'] = 497;
    nodes[1]!.answers['system.zookeeper'] = 497;
    await expect(open(...nodes)).rejects.toMatchObject({
      name: 'StartError',
      exitCode: 78,
      message: expect.stringMatching(/: remote_servers has no cluster logs$/),
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

test('rows that Keeper has not heard of are no answer to who asks for fresh ones', async () => {
  const parts_to_check = '{"table":"batches","path":"/t/replicas/s1-r1/parts"}\n';
  const part = '{"name":"20260301_0_0_0"}\n';
  const answers = { parts_to_check, 'system.parts': part };
  const [first, second] = [
    await startNode({ ...answers, 'system.zookeeper': '', 'SELECT 2': '{"n":2}\n' }),
    await startNode({ ...answers, 'system.zookeeper': part, 'SELECT 2': '{"n":3}\n' }),
  ];
  const reader = fresh(await open(first, second), ['batches']);
  expect(await select(reader, 'SELECT 2')).toEqual([{ n: 3 }]);
  second.answers['system.zookeeper'] = part.replace('0_0_0', '1_1_0');
  await expect(select(reader, 'SELECT 2')).rejects.toMatchObject({ kind: 'retry', codeName: 'PART_NOT_IN_KEEPER' });
  first.answers['system.zookeeper'] = part;
  expect(await select(reader, 'SELECT 2')).toEqual([{ n: 2 }]);
  // without a suspicion nobody asks for parts: that would double the time of a start
  first.answers = { 'SELECT 2': '{"n":4}\n', 'system.parts': 497, 'system.zookeeper': 497 };
  expect(await select(reader, 'SELECT 2')).toEqual([{ n: 4 }]);
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

describe('a read that ends with 394', () => {
  const moved = expect.objectContaining({ msg: 'clickhouse_node_changed' });
  const killed = { 'SELECT 2': 394 };

  test('because an operator killed it runs on no other node', async () => {
    const clickhouse = await open(await startNode(killed), await startNode({ 'SELECT 2': '2' }));
    await expect(clickhouse.read({ sql: 'SELECT 2', format: 'TSV' })).rejects.toMatchObject({ code: 394 });
    expect(log).not.toContainEqual(moved);
  });

  test('because its node stops is repeated on the next one', async () => {
    const stopping = await startNode();
    stopping.answers['SELECT 2'] = () => {
      stopping.shutDown();
      return 394;
    };
    const clickhouse = await open(stopping, await startNode({ 'SELECT 2': '2' }));
    expect((await clickhouse.read({ sql: 'SELECT 2', format: 'TSV' })).body.toString()).toBe('2');
  });

  test('because a node of another shard stops is repeated on the next one', async () => {
    const shards = { 'system.clusters': '{"shards":2}\n' };
    const other = new Error('Code: 394. DB::Exception: Received from s2:9000. DB::Exception: Query was cancelled.');
    const clickhouse = await open(
      await startNode({ ...shards, 'SELECT 2': other }),
      await startNode({ ...shards, getMacro: '{"shard":"s2"}\n', 'SELECT 2': '2' }),
    );
    expect((await clickhouse.read({ sql: 'SELECT 2', format: 'TSV' })).body.toString()).toBe('2');
  });

  test.each([
    ['a read', 'SELECT 2', (clickhouse: ClickHouse) => clickhouse.read({ sql: 'SELECT 2', format: 'TSV' })],
    ['a question', 'SELECT 1', (clickhouse: ClickHouse) => clickhouse.ping()],
  ])(
    'or without an answer, because we close, is sent to no other node: %s',
    { timeout: 20_000 },
    async (_, sql, ask) => {
      const asked = Promise.withResolvers<void>();
      const silent = (): null => {
        asked.resolve();
        return null;
      };
      const clickhouse = await open(await startNode({ [sql]: silent }), await startNode());
      const failed = expect(ask(clickhouse)).rejects.toMatchObject({ name: 'ClickHouseError' });
      await asked.promise;
      await clickhouse.close();
      await failed;
      expect(log).not.toContainEqual(moved);
    },
  );
});

test("a fault of the address of callers' texts is none of the node", async () => {
  const [node, sandbox] = [await startNode({ 'SELECT 2': '2' }), await startNode({ 'SELECT 3': 516 })];
  const clickhouse = await openWith({ sandboxUrl: sandbox.url }, node, await startNode());
  const isolated = (sql: string) => clickhouse.read({ sql, format: 'TSV', isolated: true });
  await expect(isolated('SELECT 3')).rejects.toMatchObject({ code: 516, kind: 'fatal' });
  sandbox.stop();
  await expect(isolated('SELECT 4')).rejects.toMatchObject({ code: undefined, kind: 'retry' });
  expect((await clickhouse.read({ sql: 'SELECT 2', format: 'TSV' })).body.toString()).toBe('2');
  expect(log).not.toContainEqual(expect.objectContaining({ msg: 'clickhouse_node_changed' }));
});

test('a node of another shard, which was away at the start, is not opened again for every read of all nodes', async () => {
  let opened = 0;
  const answers = {
    'version()': () => {
      opened++;
      return '25.8.2.1\n';
    },
    getMacro: '{"shard":"s2"}\n',
    ...replicas('s1-r1'),
  };
  const urls = [await startNode(replicas('s1-r1')), await startNode(answers)].map(({ url }) => url);
  const nodes = createNodeList({ urls, shard: 's1', logger: pino({ level: 'silent' }), wait: false });
  ends.push(() => nodes.close());
  for (let i = 0; i < 20; i++) expect(await nodes.onEvery((node) => node.ping())).toHaveLength(1);
  expect(opened).toBe(1);
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

  test('because it restarts while it is asked for rights is left for the next one', async () => {
    const restarting = await startNode();
    const clickhouse = await open(restarting, await startNode({ 'CHECK GRANT': '1' }));
    restarting.answers['CHECK GRANT'] = () => {
      restarting.stop();
      return null;
    };
    await expect(clickhouse.rights(['SELECT ON d.t'])).resolves.toMatchObject({ missing: [] });
  });

  test.each([
    ['has too many statements', 202],
    ['has no memory left', 241],
    ['has lost its user', 516],
  ])('because it %s while it is asked for rights is left, and waited for if it is the only one', async (_, code) => {
    const nodes = [await startNode({ 'CHECK GRANT': code }), await startNode({ 'CHECK GRANT': '1' })] as const;
    await expect((await open(...nodes)).rights(['SELECT ON d.t'])).resolves.toMatchObject({ missing: [] });
    const waiting = (await openWith({ wait: true }, nodes[0])).rights(['SELECT ON d.t']);
    await vi.waitFor(() => expect(log).toContainEqual(expect.objectContaining({ msg: 'waiting_for_clickhouse' })));
    nodes[0].answers = { 'CHECK GRANT': '1' };
    await expect(waiting).resolves.toMatchObject({ missing: [] });
  });

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
