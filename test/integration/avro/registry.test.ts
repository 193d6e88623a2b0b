import { afterAll, beforeEach, expect, test } from 'vitest';
import { createRegistry, RegistryError, type Registry } from '../../../services/ingest/avro/registry.ts';
import { startRegistry, type TestRegistry } from '../../harness/schema-registry.ts';

const record = { type: 'record', name: 'edge_logs', fields: [{ name: 'project', type: 'string' }] };

let server: TestRegistry;
let now = 0;
let outcomes: string[] = [];

function client(url = server.url): Registry {
  outcomes = [];
  return createRegistry({
    url,
    monotonic: () => now,
    onLookup: (outcome) => {
      outcomes.push(outcome);
    },
  });
}

beforeEach(async () => {
  await (server as TestRegistry | undefined)?.stop();
  server = await startRegistry();
});
afterAll(() => server.stop());

test('a schema is asked for once, however many want it', async () => {
  const id = server.register(record);
  const registry = client();
  expect(registry.known(id)).toBeUndefined();
  const lookups = await Promise.all(Array.from({ length: 20 }, () => registry.lookup(id)));
  await registry.lookup(id);
  expect(new Set(lookups).size).toBe(1);
  expect(registry.known(id)).toMatchObject({ schema: { type: { name: 'edge_logs' } } });
  expect(server.requests).toEqual([{ method: 'GET', path: `/schemas/ids/${id}`, authorization: undefined }]);
  expect(outcomes).toEqual(['found']);
});

test('what is found stays known while the registry is away', async () => {
  const id = server.register(record);
  const registry = client();
  await registry.lookup(id);
  await server.stop();
  expect(await registry.lookup(id)).toHaveProperty('schema');
});

test('an id that is not there is asked for again after a second, then ever later, each id by itself', async () => {
  const registry = client();
  now = 1_000_000;
  for (const seconds of [1, 2, 4, 8, 16, 30, 30]) {
    expect(await registry.lookup(5)).toMatchObject({ detail: 'schema id 5 is not in the registry' });
    const { length } = server.requests;
    now += seconds * 1_000 - 1;
    await registry.lookup(5);
    expect(server.requests).toHaveLength(length);
    now += 1;
    expect(registry.known(5)).toMatchObject({ detail: 'schema id 5 is not in the registry' });
  }
  await registry.lookup(6);
  now += 1_000;
  server.register(record, 5);
  server.register(record, 6);
  for (const id of [5, 6]) {
    expect(await registry.lookup(id)).toHaveProperty('schema');
    expect(registry.known(id)).toHaveProperty('schema');
  }
  expect(outcomes).toEqual([...Array.from({ length: 8 }, () => 'refused'), 'found', 'found']);
});

test.each([40401, 40403, 40499])('a 404 with the error code %i says that the id is not there', async (code) => {
  server.fault = { status: 404, body: `{"error_code":${code},"message":"Schema not found"}` };
  expect(await client().lookup(5)).toMatchObject({ detail: 'schema id 5 is not in the registry' });
});

test.each<[string, { status: number; body: string }]>([
  ['500', { status: 500, body: '{"error_code":50001}' }],
  ['503', { status: 503, body: '' }],
  ['401', { status: 401, body: '{"error_code":401}' }],
  ['429', { status: 429, body: '' }],
  ['404 with a page', { status: 404, body: '<html><body>404</body></html>' }],
  ['404 of Traefik', { status: 404, body: '404 page not found\n' }],
  ['404 of ingress-nginx', { status: 404, body: 'default backend - 404' }],
  ['404 of Kong', { status: 404, body: '{"message":"no Route matched with those values"}' }],
  ['404 of Spring', { status: 404, body: '{"timestamp":1,"status":404,"error":"Not Found","path":"/schemas/ids/1"}' }],
  ['404 of Envoy', { status: 404, body: '' }],
  ['404 for a wrong path', { status: 404, body: '{"error_code":404,"message":"HTTP 404 Not Found"}' }],
  ['404 with a text as code', { status: 404, body: '{"error_code":"40403"}' }],
  ['404 with a fraction as code', { status: 404, body: '{"error_code":40403.5}' }],
  ['404 with a code beyond', { status: 404, body: '{"error_code":40500}' }],
  ['404 with null', { status: 404, body: 'null' }],
  ['500 with the code of a 404', { status: 500, body: '{"error_code":40403}' }],
  ['a page', { status: 200, body: '<html>' }],
  ['another document', { status: 200, body: '{"id":1}' }],
  ['null', { status: 200, body: 'null' }],
])('an answer that is none (%s) is a reason to wait, and is not kept', async (_, fault) => {
  const id = server.register(record);
  const registry = client();
  server.fault = fault;
  const error = await registry.lookup(id).catch((e: unknown) => e);
  expect(error).toBeInstanceOf(RegistryError);
  expect(error).toMatchObject({ kind: 'retry' });
  expect(registry.known(id)).toBeUndefined();
  server.fault = undefined;
  expect(await registry.lookup(id)).toHaveProperty('schema');
  expect(outcomes).toEqual(['failed', 'found']);
});

test.each<[string, number, string, string]>([
  [
    'a short text',
    404,
    ' 404 page\r\n\tnot \u0000\u001b[31mfound\n',
    'returned HTTP 404 for schema id 5: 404 page not [31mfound',
  ],
  ['100 characters', 502, '😀'.repeat(200), `returned HTTP 502 for schema id 5: ${'😀'.repeat(100)}`],
  ['no body', 404, '', 'returned HTTP 404 for schema id 5'],
  ['a long body', 404, 'x'.repeat(1_001), 'returned HTTP 404 for schema id 5'],
  ['no text', 404, '\ufffd', 'returned HTTP 404 for schema id 5'],
  ['no schema', 200, '<html>', 'returned HTTP 200 without a schema for schema id 5: <html>'],
])('the error says what came: %s', async (_, status, body, message) => {
  server.fault = { status, body };
  await expect(client().lookup(5)).rejects.toMatchObject({ message: `the schema registry ${server.url} ${message}` });
});

test('an answer of more than 8 MiB is read no further, and is a reason to wait', async () => {
  const schema = (bytes: number): string => JSON.stringify({ schema: JSON.stringify(record) }).padEnd(bytes);
  const registry = client();
  server.fault = { status: 200, body: schema(16 * 1024 ** 2) };
  await expect(registry.lookup(5)).rejects.toMatchObject({
    kind: 'retry',
    message: `the schema registry ${server.url} returned more than 8388608 bytes for schema id 5`,
  });
  server.fault = { status: 200, body: schema(8 * 1024 ** 2) };
  expect(await registry.lookup(5)).toHaveProperty('schema');
});

test('an answer may say null for no type and for no references', async () => {
  server.fault = {
    status: 200,
    body: JSON.stringify({ schema: JSON.stringify(record), schemaType: null, references: null }),
  };
  expect(await client().lookup(5)).toHaveProperty('schema');
});

test('a registry that is away is a reason to wait', async () => {
  const id = server.register(record);
  const registry = client();
  await server.stop();
  await expect(registry.lookup(id)).rejects.toMatchObject({
    kind: 'retry',
    message: expect.stringMatching(/^the schema registry http:\/\/127\.0\.0\.1:\d+ does not answer: ECONN/) as string,
  });
  await server.start();
  expect(await registry.lookup(id)).toHaveProperty('schema');
});

test('the URL may have a user, a password and a path; the password is in no message', async () => {
  const id = server.register(record);
  const registry = client(`${server.url.replace('://', '://us%40er:pass%2Fword@')}/apis/ccompat/v7/`);
  expect(await registry.lookup(id)).toHaveProperty('schema');
  expect(server.requests).toEqual([
    {
      method: 'GET',
      path: `/apis/ccompat/v7/schemas/ids/${id}`,
      authorization: `Basic ${Buffer.from('us@er:pass/word').toString('base64')}`,
    },
  ]);
  server.fault = { status: 500, body: '' };
  const error = (await registry.lookup(99).catch((e: unknown) => e)) as Error;
  expect(error.message).toContain('/apis/ccompat/v7');
  expect(JSON.stringify([error.message, error.stack, String(error.cause)])).not.toMatch(/pass|us@er|us%40er/);
});

test.each<[string, object, string]>([
  ['Protobuf', { schema: 'syntax = "proto3";', schemaType: 'PROTOBUF' }, 'schema id 1 is of type PROTOBUF'],
  ['JSON Schema', { schema: '{}', schemaType: 'JSON' }, 'schema id 1 is of type JSON'],
  [
    'a schema in parts',
    { schema: JSON.stringify(record), references: [{ name: 'x', subject: 'x', version: 1 }] },
    'schema id 1 refers to other schemas',
  ],
  ['no schema', { schema: '{"type":"record"' }, 'schema id 1 cannot be parsed'],
  ['an unknown type', { schema: '{"type":"recrod","name":"x"}' }, 'schema id 1 cannot be parsed'],
])('%s is refused for good', async (_, registered, detail) => {
  server.register(registered, 1);
  const registry = client();
  expect(await registry.lookup(1)).toEqual({ detail: expect.stringContaining(detail) as string });
  now += 3_600_000;
  await registry.lookup(1);
  expect(server.requests).toHaveLength(1);
});
