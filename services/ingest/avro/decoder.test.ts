import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { StartError } from '../../../common/errors.ts';
import { readSettings } from '../../../common/config/settings.ts';
import { confluent, singleObject, singleObjectHeader, writerOf } from '../../../test/harness/avro.ts';
import { createAvroDecoder, MAX_IDS, type AvroDecoder } from './decoder.ts';
import type { Lookup, Registry } from './registry.ts';
import { parseSchema, readKnownSchemas, type Schema } from './schemas.ts';

const folder = mkdtempSync(join(tmpdir(), 'sluice-avro-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const older = { type: 'record', name: 'edge_logs', namespace: 'sluice', fields: [{ name: 'project', type: 'string' }] };
const newer = {
  type: 'record',
  name: 'edge_logs',
  namespace: 'org.example',
  fields: [
    { name: 'project', type: 'string' },
    { name: 'shard', type: 'int' },
  ],
};
const foreign = { type: 'record', name: 'orders', fields: [{ name: 'project', type: 'string' }] };
mkdirSync(join(folder, 'good', 'deep'), { recursive: true });
writeFileSync(join(folder, 'good', 'older.avsc'), JSON.stringify(older));
writeFileSync(join(folder, 'good', 'deep', 'newer.avsc'), JSON.stringify(newer));
writeFileSync(join(folder, 'good', 'deep', 'orders.avsc'), JSON.stringify(foreign));
writeFileSync(join(folder, 'good', 'README.md'), 'not a schema');
mkdirSync(join(folder, 'bad'));
writeFileSync(join(folder, 'bad', 'broken.avsc'), '{"type":"record"');

const schemas = readKnownSchemas(join(folder, 'good'));
const maxEventBytes = 1000;

type Bound = Pick<AvroDecoder, 'usableIds' | 'load'> & {
  raw(value: Buffer): Buffer | object;
  singleObject(value: Buffer): Buffer | object;
  confluent(value: Buffer, ids: ReadonlySet<number>): Buffer | object;
};
/** A decoder whose texts are as long as an event may be. */
function decoderOf(registry?: Registry): Bound {
  const decoder = createAvroDecoder('edge_logs', schemas, registry);
  return {
    ...decoder,
    raw: (value) => decoder.raw(value, maxEventBytes),
    singleObject: (value) => decoder.singleObject(value, maxEventBytes),
    confluent: (value, ids) => decoder.confluent(value, maxEventBytes, ids),
  };
}

const datumOf = (schema: object, value: unknown): Buffer => writerOf(schema)(value);
const parsed = (schema: object): Schema => parseSchema(JSON.stringify(schema));
const text = (result: Buffer | object): unknown => (Buffer.isBuffer(result) ? result.toString('utf8') : result);

describe('single-object encoding', () => {
  const decoder = decoderOf();
  const current = schemas.current.edge_logs.type.schema() as object;

  test('with the present schema', () => {
    expect(
      text(
        decoder.singleObject(
          singleObject(current, {
            project: 'abc',
            id: null,
            timestamp: 1_767_000_000_000_000,
            event_message: null,
            message: null,
            appname: null,
            metadata: null,
          }),
        ),
      ),
    ).toBe('{"timestamp":1767000000000000,"project":"abc"}');
  });

  test("with schemas of the operator's folder, whatever their namespace", () => {
    expect(text(decoder.singleObject(singleObject(older, { project: 'abc' })))).toBe('{"project":"abc"}');
    expect(text(decoder.singleObject(singleObject(newer, { project: 'abc', shard: 7 })))).toBe(
      '{"project":"abc","shard":7}',
    );
  });

  test('with a schema that is nowhere', () => {
    const unknown = { ...older, fields: [{ name: 'project', type: 'int' }] };
    expect(text(decoder.singleObject(singleObject(unknown, { project: 1 })))).toEqual({
      reason: 'unknown_schema',
      detail: `schema fingerprint ${singleObjectHeader(unknown).toString('hex', 2)}`,
    });
  });

  test('with the schema of another source, or of none', () => {
    const other = schemas.current.postgrest_logs.type.schema() as object;
    const value = Buffer.concat([singleObjectHeader(other), Buffer.alloc(7)]);
    expect(decoder.singleObject(value)).toEqual({
      reason: 'unknown_schema',
      detail: 'schema sluice.postgrest_logs is not one of edge_logs',
    });
    expect(decoder.singleObject(singleObject(foreign, { project: 'abc' }))).toEqual({
      reason: 'unknown_schema',
      detail: 'schema orders is not one of edge_logs',
    });
  });

  test.each([2, 5, 9])('cut off after %i bytes', (length) => {
    expect(decoder.singleObject(singleObject(older, { project: 'abc' }).subarray(0, length))).toEqual({
      reason: 'malformed_avro',
      detail: 'header cut off',
    });
  });

  test('cut off in the datum, or with bytes left over', () => {
    const whole = singleObject(older, { project: 'abc' });
    expect(decoder.singleObject(whole.subarray(0, 10))).toMatchObject({ reason: 'malformed_avro' });
    expect(decoder.singleObject(whole.subarray(0, 12))).toMatchObject({ reason: 'malformed_avro' });
    expect(decoder.singleObject(Buffer.concat([whole, whole]))).toEqual({
      reason: 'malformed_avro',
      detail: `${whole.length} bytes left over`,
    });
  });

  test('with more text than an event may have', () => {
    expect(decoder.singleObject(singleObject(older, { project: '\u0001'.repeat(200) }))).toEqual({
      reason: 'too_large',
      detail: `more than ${maxEventBytes} bytes as JSON`,
    });
  });
});

test('a raw datum is one of the present schema', () => {
  const { type } = schemas.current.edge_logs;
  const datum = type.toBuffer({
    project: { string: 'abc' },
    id: null,
    timestamp: null,
    event_message: null,
    message: null,
    appname: null,
    metadata: null,
  });
  expect(text(decoderOf().raw(datum))).toBe('{"project":"abc"}');
  expect(decoderOf().raw(Buffer.from('{"project":"abc"}'))).toMatchObject({ reason: 'malformed_avro' });
  expect(decoderOf().raw(Buffer.concat([datum, Buffer.of(0)]))).toEqual({
    reason: 'malformed_avro',
    detail: '1 bytes left over',
  });
});

describe("Confluent's format", () => {
  const answers = new Map<number, Lookup>([
    [7, { schema: parsed(older) }],
    [8, { schema: parsed(newer) }],
    [9, { schema: parsed(foreign) }],
    [10, { detail: 'schema id 10 is of type PROTOBUF' }],
    [12, { schema: parseSchema('"string"') }],
  ]);
  function registryOf(): Registry & { readonly asked: number[] } {
    const asked: number[] = [];
    return {
      asked,
      keeps: (id) => asked.includes(id),
      known: (id) =>
        asked.includes(id) ? (answers.get(id) ?? { detail: `schema id ${id} is not in the registry` }) : undefined,
      lookup: (id) => {
        asked.push(id);
        return Promise.resolve(answers.get(id) ?? { detail: `schema id ${id} is not in the registry` });
      },
    };
  }
  const good = datumOf(older, { project: 'abc' });

  test('ids are looked up before; only those that this source can read are usable', async () => {
    const registry = registryOf();
    const decoder = decoderOf(registry);
    const values = [12, 8, 7, 9, 10, 11, 7, 2 ** 31].map((id) => confluent(id, good));
    const ids = await decoder.usableIds([...values, Buffer.from([0, 1])]);
    expect(ids).toEqual([7, 8]);
    expect(registry.asked.toSorted((a, b) => a - b)).toEqual([7, 8, 9, 10, 11, 12]);
    const usable = new Set(ids);
    expect(text(decoder.confluent(confluent(7, good), usable))).toBe('{"project":"abc"}');
    expect(text(decoder.confluent(confluent(8, datumOf(newer, { project: 'x', shard: 1 })), usable))).toBe(
      '{"project":"x","shard":1}',
    );
    const refused: [number, string][] = [
      [9, 'schema orders is not one of edge_logs'],
      [10, 'schema id 10 is of type PROTOBUF'],
      [11, 'schema id 11 is not in the registry'],
      [12, 'schema string is not one of edge_logs'],
      [2 ** 31, 'schema id 2147483648'],
    ];
    for (const [id, detail] of refused)
      expect(decoder.confluent(confluent(id, good), usable)).toEqual({ reason: 'unknown_schema', detail });
    expect(decoder.confluent(confluent(7, good.subarray(1)), usable)).toMatchObject({ reason: 'malformed_avro' });
    expect(decoder.confluent(Buffer.from([0, 0, 0]), usable)).toEqual({
      reason: 'malformed_avro',
      detail: 'header cut off',
    });
  });

  test('a schema may have a namespace that only Java accepts', async () => {
    const logs = { ...older, namespace: 'com.my-company.logs' };
    const orders = { ...foreign, namespace: '2024.logs' };
    const found = new Map([logs, orders].map((schema, id): [number, Lookup] => [id, { schema: parsed(schema) }]));
    const own = decoderOf({
      keeps: (id) => found.has(id),
      known: (id) => found.get(id),
      lookup: (id) => Promise.resolve(found.get(id)!),
    });
    const [first, second] = [0, 1].map((id) => confluent(id, good));
    expect(await own.usableIds([first!, second!])).toEqual([0]);
    expect(text(own.confluent(first!, new Set([0])))).toBe('{"project":"abc"}');
    expect(own.confluent(second!, new Set([0]))).toEqual({
      reason: 'unknown_schema',
      detail: 'schema 2024.logs.orders is not one of edge_logs',
    });
  });

  test('a schema that cannot be compiled is unknown, and an error is a record', async () => {
    const error = {
      ...older,
      type: 'error',
      fields: [...older.fields, { name: 'e', type: { ...older, type: 'error', name: 'x' } }],
    };
    const novel = { name: 'n', aliases: [], type: { typeName: 'novel' } };
    const { type, ...others } = parsed(older);
    const strange = { ...others, type: Object.create(type, { fields: { value: [novel] } }) as typeof type };
    const found = new Map([parsed(error), strange].map((schema, id): [number, Lookup] => [id, { schema }]));
    const decoder = decoderOf({
      keeps: (id) => found.has(id),
      known: (id) => found.get(id),
      lookup: (id) => Promise.resolve(found.get(id)!),
    });
    const datum = Buffer.concat([good, good]);
    expect(await decoder.usableIds([0, 1].map((id) => confluent(id, datum)))).toEqual([0]);
    expect(text(decoder.confluent(confluent(0, datum), new Set([0])))).toBe('{"project":"abc","e":{"project":"abc"}}');
    expect(decoder.confluent(confluent(1, good), new Set([0, 1]))).toEqual({
      reason: 'unknown_schema',
      detail: 'schema sluice.edge_logs cannot be read: a type novel',
    });
  });

  const junk = Array.from({ length: 5_000 }, (_, i) => confluent(1_000_000 + i, good));

  test('the commonest ids are asked for, until 50 of a batch are refused', async () => {
    const registry = registryOf();
    const decoder = decoderOf(registry);
    expect(await decoder.usableIds([...junk, confluent(7, good), confluent(7, good)])).toEqual([7]);
    expect(registry.asked[0]).toBe(7);
    // eight at a time
    expect(registry.asked.length).toBeLessThan(1 + 50 + 8);
    expect(decoder.confluent(junk.at(-1)!, new Set([7]))).toEqual({
      reason: 'unknown_schema',
      detail: 'schema id 1004999',
    });
  });

  test('schemas of others are no refusals, however many of them are commoner', async () => {
    const [own, foreign] = [parsed(older), parsed({ type: 'record', name: 'sluice.other', fields: [] })];
    const asked = new Set<number>();
    const lookupOf = (id: number): Lookup => ({ schema: id === 7 ? own : foreign });
    const registry: Registry = {
      known: (id) => (asked.has(id) ? lookupOf(id) : undefined),
      keeps: (id) => asked.has(id),
      lookup: (id) => {
        asked.add(id);
        return Promise.resolve(lookupOf(id));
      },
    };
    const others = Array.from({ length: 200 }, (_, i) => confluent(1_000 + i, good));
    expect(await decoderOf(registry).usableIds([...others, ...others, confluent(7, good)])).toEqual([7]);
  });

  test('refusals that are known keep no other id from being asked for', async () => {
    const registry = registryOf();
    const decoder = decoderOf(registry);
    await Promise.all(junk.map((value) => registry.lookup(value.readUInt32BE(1))));
    expect(await decoder.usableIds([...junk, ...junk, confluent(7, good)])).toEqual([7]);
    expect(registry.asked).toHaveLength(junk.length + 1);
  });

  test('after a start all ids of a batch are asked for, if the registry has as many as a batch can use', async () => {
    const schema = parsed(older);
    const asked = new Set<number>();
    const registry: Registry = {
      known: (id) => (asked.has(id) ? { schema } : undefined),
      keeps: (id) => asked.has(id),
      lookup: (id) => {
        asked.add(id);
        return Promise.resolve({ schema });
      },
    };
    const ids = Array.from({ length: 1_000 }, (_, i) => i + 1);
    const usable = await decoderOf(registry).usableIds(ids.map((id) => confluent(id, good)));
    expect(usable).toEqual(ids.slice(0, MAX_IDS));
    expect(asked.size).toBeLessThan(MAX_IDS + 8);
    // only the rest is new to the second batch
    expect(await decoderOf(registry).usableIds(ids.map((id) => confluent(id, good)))).toHaveLength(MAX_IDS);
    expect(asked.size).toBeLessThan(2 * (MAX_IDS + 8));
  });

  test('an id that was unknown when its batch was announced stays unknown to it', async () => {
    const registry = registryOf();
    const decoder = decoderOf(registry);
    await registry.lookup(7);
    expect(decoder.confluent(confluent(7, good), new Set())).toEqual({
      reason: 'unknown_schema',
      detail:
        'schema id 7 was not announced with its batch: the registry did not have it then, or the batch has more than 300 schema ids',
    });
  });

  test('an id that was known then is waited for where a message needs it', async () => {
    const registry = registryOf();
    const decoder = decoderOf(registry);
    const [seven, eleven] = [confluent(7, good), confluent(11, good)];
    await expect(decoder.load([7, 11], [seven, eleven])).rejects.toMatchObject({
      kind: 'retry',
      message: 'the schema registry no longer has schema id 11, with which a batch was announced',
    });
    // retention or compaction took the messages that needed it
    await decoder.load([7, 8, 11], [seven, Buffer.from('{}')]);
    expect(registry.asked).not.toContain(8);
    expect(text(decoder.confluent(confluent(7, good), new Set([7, 8])))).toBe('{"project":"abc"}');
  });

  test('an id that was known then is waited for, too, where the setting of the registry is gone', async () => {
    const decoder = decoderOf();
    await decoder.load([7], [Buffer.from('{}')]);
    await expect(decoder.load([7], [confluent(7, good)])).rejects.toMatchObject({
      kind: 'retry',
      message: 'there is no SCHEMA_REGISTRY_URL, and a batch was announced with schema id 7',
    });
  });

  test('without a registry every id is unknown', async () => {
    const decoder = decoderOf();
    expect(await decoder.usableIds([confluent(7, good)])).toEqual([]);
    expect(decoder.confluent(confluent(7, good), new Set())).toEqual({
      reason: 'unknown_schema',
      detail: 'schema id 7, and there is no SCHEMA_REGISTRY_URL',
    });
  });

  test('a batch uses the commonest ids, as many as a commit can carry', async () => {
    const schema = parsed(older);
    const everything: Registry = {
      keeps: () => true,
      known: () => ({ schema }),
      lookup: () => Promise.resolve({ schema }),
    };
    const rare = Array.from({ length: 50 }, (_, i) => 1_000_000_000 + i);
    const common = Array.from({ length: MAX_IDS }, (_, i) => 2_000_000_000 + i);
    const messages = [...rare, ...common, ...common.toReversed()].map((id) => confluent(id, good));
    expect(await decoderOf(everything).usableIds(messages)).toEqual(common);
  });
});

describe('AVRO_SCHEMAS_DIR', () => {
  test.each([
    [join(folder, 'bad'), 'AVRO_SCHEMAS_DIR: broken.avsc: '],
    [join(folder, 'absent'), 'AVRO_SCHEMAS_DIR: '],
  ])('%s is refused', (path, message) => {
    expect(() => readKnownSchemas(path)).toThrow(StartError);
    expect(() => readKnownSchemas(path)).toThrow(message);
  });
});

describe('KAFKA_RAW_AVRO_TOPICS', () => {
  test('names topics, after KAFKA_TOPICS', () => {
    expect(
      readSettings({
        KAFKA_TOPICS: 'edge_logs=cloudflare.logs.prod',
        KAFKA_RAW_AVRO_TOPICS: 'cloudflare.logs.prod, auth_logs',
      }).KAFKA_RAW_AVRO_TOPICS,
    ).toEqual(['cloudflare.logs.prod', 'auth_logs']);
    expect(readSettings({}).KAFKA_RAW_AVRO_TOPICS).toEqual([]);
  });

  test('of no source are a mistake', () => {
    expect(() =>
      readSettings({ KAFKA_TOPICS: 'edge_logs=cloudflare.logs.prod', KAFKA_RAW_AVRO_TOPICS: 'edge_logs' }),
    ).toThrow(/KAFKA_RAW_AVRO_TOPICS has "edge_logs"; use topics of KAFKA_TOPICS: cloudflare\.logs\.prod/);
  });
});
