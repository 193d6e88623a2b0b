import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { waitFor } from '../../harness/wait-for.ts';
import { whileAlive } from './alive.ts';
import { openPushWorld, type PushWorld } from './push-world.ts';

// Guarantee: no body of push stops the service for anybody else, whatever it holds, and no limited key counts for
// another.

const MB = 1024 * 1024;
const fill = (bytes: number, before: string, unit: string, after: string): Buffer =>
  Buffer.from(before + unit.repeat(Math.floor((bytes - before.length - after.length) / unit.length)) + after);
const event = (members: string): string => `{"project":"p",${members}}`;

/** each with the status that it gets */
const bodies: readonly (readonly [string, Buffer, number])[] = [
  ['a project of a million letters', fill(1_000_000, '[{"project":"', 'a', '"}]'), 422],
  ['a project of eight million digits', fill(8 * MB, '{"project":1', '0', '}'), 422],
  ['a project of eight million escapes', fill(8 * MB, '{"project":"', '\\u0061', '"}'), 422],
  ['opened lists', fill(8 * MB, '', '[', ''), 400],
  ['opened and closed lists', Buffer.from('['.repeat(4 * MB) + ']'.repeat(4 * MB)), 422],
  ['opened lists in an event', fill(8 * MB, '{"project":"p","metadata":', '[', ''), 422],
  [
    'opened and closed lists in an event',
    Buffer.from(event(`"metadata":${'['.repeat(4_000_000)}${']'.repeat(4_000_000)}`)),
    422,
  ],
  ['opened objects in a batch', fill(8 * MB, '{"batch":[', '{"a":', ''), 400],
  ['lines of opened lists', fill(8 * MB, '{}\n', `${'['.repeat(1_000)}\n`, ''), 422],
  ['empty objects in an event', fill(8 * MB, '{"project":"p","metadata":[', '{},', '{}]}'), 200],
  [
    'names of an event',
    Buffer.from(event(`${Array.from({ length: 600_000 }, (_, i) => `"k${i}":0`).join(',')},"z":0`)),
    200,
  ],
  ['a hundred thousand events', fill(5 * 100_000, '{"batch":[', '{},', '{}]}'), 413],
  ['twenty thousand events', fill(17 * 20_000, '[', '{"project":"p"},', '{"project":"p"}]'), 200],
  ['ninety thousand wrong events', fill(3 * 90_000, '[', '{},', '{}]'), 422],
  ['a url of eight million letters', fill(8 * MB - 100, '{"metadata":{"request":{"url":"', 'a', '"}}}'), 200],
  ['a timestamp of eight million digits', fill(8 * MB, '{"project":"p","timestamp":"', '1', '"}'), 422],
  ['ten million empty lines', fill(10 * MB, '', '\n', ''), 400],
];

describe('push', () => {
  let world: PushWorld;
  let key: string;

  beforeAll(async () => {
    world = await openPushWorld();
    key = await world.createKey({ name: 'attacker' });
  });
  afterAll(() => world?.close());

  it.each(bodies)('%s stop nobody', async (_, body, status) => {
    const statuses: number[] = [];
    const compressed = gzipSync(body, { level: 1 });
    await whileAlive(world.address, async () => {
      statuses.push(
        (await world.push(key, body)).status,
        (await world.push(key, compressed, { 'content-encoding': 'gzip' })).status,
      );
    });
    expect(statuses).toEqual([status, status]);
  });

  it('a key that sends a crowd of bodies that are small only when they are sent does not keep another key waiting', async () => {
    const other = await world.createKey({ name: 'other' });
    const bomb = gzipSync(Buffer.alloc(10 * MB, ' '));
    let answered = 0;
    const crowd = Array.from({ length: 60 }, async () => {
      const { status } = await world.push(key, bomb, { 'content-encoding': 'gzip' });
      answered++;
      return status;
    });
    await waitFor(() => answered > 0, 20_000, 'the crowd is there');
    for (let i = 0; i < 3; i++) expect((await world.push(other, '{"project":"p"}')).status).toBe(200);
    // one body of the crowd for each of the three, and what was in flight
    expect(answered).toBeLessThan(40);
    expect(new Set(await Promise.all(crowd))).toEqual(new Set([400]));
  });

  it('a key that is limited to projects is told 422 of a url whose host names another reference, and nothing of its request is taken', async () => {
    const [mine, theirs] = ['mineabcdefghijklmnop', 'theirsabcdefghijklmn'];
    const limited = await world.createKey({ projects: [mine] });
    const edge = (url: string): string =>
      JSON.stringify({ project: mine, metadata: { request: { url, path: '/rest/v1/x' } } });
    const reply = await world.push(
      limited,
      `[${edge(`https://${mine}.supabase.co/rest/v1/x`)},${edge(`https://${theirs}.supabase.co/rest/v1/x`)}]`,
    );
    expect(reply.error).toMatchObject({
      status: 422,
      code: 'invalid_events',
      errors: [{ index: 1, message: "has a url whose host contains a reference that is none of the key's projects" }],
    });
    expect((await world.push(limited, edge(`https://${mine}.supabase.co/rest/v1/x`))).status).toBe(200);
    expect((await world.push(key, edge(`https://${theirs}.supabase.co/rest/v1/x`))).status).toBe(200);
  });
});
