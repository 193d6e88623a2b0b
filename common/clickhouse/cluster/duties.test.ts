import { describe, expect, test } from 'vitest';
import {
  log,
  LOST,
  notReady,
  open,
  replicas,
  startNode,
  table,
  tables,
  type Answers,
} from '../../../test/harness/scripted-nodes.ts';

// Guarantee: each node gets the tables that it lacks, and one that cannot take them stops no other one.

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

  test('gets every table that it can get, and none that is no replica', async () => {
    const held = tables(
      { name: 'own', replicated: null },
      { name: 'refused', replicated: 'r' },
      { name: 'batches', replicated: 'a' },
    );
    const joining = await startNode({
      'CREATE TABLE own': () => expect.fail('it is no replica'),
      'CREATE TABLE refused': 253,
    });
    const { cluster } = await open(await startNode(held), joining);
    await cluster!.complete();
    expect(log).toContainEqual(notReady(joining, expect.stringContaining('253')));
    expect(log).toContainEqual(expect.objectContaining({ msg: 'clickhouse_node_completed', tables: 1 }));
  });

  test('gets no table while a migration creates tables on all nodes', async () => {
    const migrations = { name: 'migrations', replicated: 'm' };
    const most = tables({ name: 'batches', replicated: 'a' }, migrations);
    const nodes = [await startNode({ ...most, 'FROM migrations': '{"version":3}\n' }), await startNode(most)] as const;
    const { cluster } = await open(...nodes);
    const completed = expect.objectContaining({ msg: 'clickhouse_node_completed', node: nodes[1].host, tables: 1 });
    await cluster!.complete();
    nodes[1].answers = tables(migrations);
    await cluster!.complete();
    expect(log).not.toContainEqual(completed);
    nodes[0].answers = most;
    await cluster!.complete();
    expect(log).toContainEqual(completed);
  });

  test('is waited for at the start, whose migration would create other tables there', async () => {
    const most = tables({ name: 'batches', replicated: 'a' }, { name: 'migrations', replicated: 'm' });
    const node = await startNode(most);
    const joining = await startNode();
    node.answers = {
      ...most,
      'FROM migrations': () => {
        node.answers = most;
        return '{"version":3}\n';
      },
    };
    await (await open(node, joining)).cluster!.complete();
    expect(log).toContainEqual(
      expect.objectContaining({ msg: 'clickhouse_node_completed', node: joining.host, tables: 2 }),
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
