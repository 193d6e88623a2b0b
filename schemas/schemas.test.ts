import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import avro from 'avsc';
import { describe, expect, test } from 'vitest';
import { sources, type SourceName } from '../common/sources.ts';

const folder = import.meta.dirname;
const cases = ['typical', 'self-hosted', 'all-null', 'unicode', 'largest'];

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
interface Field {
  name: string;
  type: AvroSchema;
  default?: unknown;
  doc?: string;
}
interface RecordSchema {
  type: 'record';
  name: string;
  namespace?: string;
  doc?: string;
  fields: Field[];
}
type AvroSchema =
  | string
  | RecordSchema
  | { type: 'array'; items: AvroSchema }
  | { type: string; logicalType?: string }
  | AvroSchema[];

const readText = (...path: string[]): string => readFileSync(join(folder, ...path), 'utf8');
const readSchema = (source: SourceName): RecordSchema => JSON.parse(readText(`${source}.avsc`)) as RecordSchema;
const typeOf = (schema: RecordSchema): avro.Type => avro.Type.forSchema(schema as avro.Schema);
const readExample = (source: SourceName, name: string): { [key: string]: Json } =>
  JSON.parse(readText('examples', source, `${name}.json`)) as { [key: string]: Json };

const isRecord = (schema: AvroSchema): schema is RecordSchema =>
  typeof schema === 'object' && !Array.isArray(schema) && schema.type === 'record';

/** The records of a schema, itself first, each once. */
function recordsOf(schema: AvroSchema): RecordSchema[] {
  if (Array.isArray(schema)) return schema.flatMap(recordsOf);
  if (!isRecord(schema)) return [];
  return [schema, ...schema.fields.flatMap((f) => recordsOf(f.type))];
}

/** The field at a dotted path, or undefined. */
function findField(record: RecordSchema, path: string): Field | undefined {
  const [name, ...rest] = path.split('.');
  const field = record.fields.find((f) => f.name === name);
  if (field === undefined || rest.length === 0) return field;
  const inner = Array.isArray(field.type) ? field.type.find(isRecord) : undefined;
  return inner && findField(inner, rest.join('.'));
}

/** An absent key and null are the same event: keys with null are dropped at every depth. */
function withoutNulls(value: Json): Json {
  if (Array.isArray(value)) return value.map(withoutNulls);
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, v]) => v !== null)
      .map(([k, v]) => [k, withoutNulls(v)]),
  );
}

/** Plain objects out of avsc's record instances. */
const plain = (value: unknown): Json => JSON.parse(JSON.stringify(value)) as Json;

/** Every field known of each source, and the bytes of an event of it: JSON, Avro. */
const known: Record<SourceName, { bytes: [json: number, avro: number]; metadata: string[] }> = {
  edge_logs: {
    bytes: [2275, 1265],
    metadata: [
      'request',
      ...within('request', ['method', 'path', 'search', 'url', 'host', 'protocol', 'port']),
      ...within('request.headers', [
        'accept',
        'cf_connecting_ip',
        'cf_ipcountry',
        'cf_ray',
        'host',
        'referer',
        'user_agent',
        'x_forwarded_proto',
        'x_real_ip',
        'x_client_info',
      ]),
      ...within('request.cf', [
        'asOrganization',
        'asn',
        'city',
        'clientAcceptEncoding',
        'clientTcpRtt',
        'clientTrustScore',
        'colo',
        'continent',
        'country',
        'edgeRequestKeepAliveStatus',
        'httpProtocol',
        'isEUCountry',
        'latitude',
        'longitude',
        'postalCode',
        'region',
        'regionCode',
        'timezone',
        'tlsCipher',
        'tlsVersion',
        'requestPriority',
      ]),
      ...within('request.cf.botManagement', [
        'corporateProxy',
        'ja3Hash',
        'score',
        'staticResource',
        'verifiedBot',
        'detectionIds',
      ]),
      ...within('request.cf.tlsClientAuth', ['certPresented', 'certRevoked', 'certVerified']),
      ...within('request.cf.tlsExportedAuthenticator', [
        'clientFinished',
        'clientHandshake',
        'serverFinished',
        'serverHandshake',
      ]),
      'response',
      ...within('response', ['status_code', 'origin_time']),
      ...within('response.headers', [
        'cf_cache_status',
        'cf_ray',
        'content_length',
        'content_type',
        'date',
        'sb_gateway_mode',
        'sb_gateway_version',
        'transfer_encoding',
      ]),
      'logflare_worker.worker_id',
    ],
  },
  function_edge_logs: {
    bytes: [1078, 686],
    metadata: [
      'project_ref',
      'function_id',
      'deployment_id',
      'version',
      'execution_time_ms',
      ...within('request', ['method', 'pathname', 'search', 'url', 'host', 'protocol', 'headers']),
      ...within('response', ['status_code', 'headers']),
    ],
  },
  function_logs: {
    bytes: [457, 268],
    metadata: [
      'project_ref',
      'function_id',
      'deployment_id',
      'execution_id',
      'event_type',
      'level',
      'region',
      'version',
      'timestamp',
    ],
  },
  postgres_logs: {
    bytes: [713, 336],
    metadata: [
      'host',
      ...within('parsed', [
        'error_severity',
        'backend_type',
        'command_tag',
        'connection_from',
        'context',
        'database_name',
        'leader_pid',
        'process_id',
        'query_id',
        'session_id',
        'session_line_num',
        'session_start_time',
        'sql_state_code',
        'timestamp',
        'transaction_id',
        'user_name',
        'virtual_transaction_id',
      ]),
    ],
  },
  auth_logs: {
    bytes: [1283, 679],
    metadata: [
      'component',
      'host',
      'level',
      'method',
      'msg',
      'path',
      'remote_addr',
      'request_id',
      'referer',
      'status',
      'duration',
      'error',
      'time',
      'timestamp',
      'user_id',
      'client_id',
      'args',
      'metering',
      ...within('auth_event', ['action', 'actor_id', 'actor_name', 'actor_username', 'actor_via_sso', 'log_type']),
      ...within('auth_event.traits', ['provider', 'user_email', 'user_id']),
      'project',
    ],
  },
  realtime_logs: {
    bytes: [883, 619],
    metadata: [
      'project',
      'external_id',
      'level',
      ...within('context', [
        'application',
        'domain',
        'file',
        'function',
        'gl',
        'line',
        'mfa',
        'module',
        'pid',
        'time',
        'vm.node',
      ]),
    ],
  },
  storage_logs: {
    bytes: [321, 186],
    metadata: ['project', 'tenantId', 'reqId', 'level', ...within('context', ['host', 'pid'])],
  },
  postgrest_logs: { bytes: [196, 108], metadata: ['host'] },
  pgbouncer_logs: { bytes: [257, 170], metadata: ['host'] },
};
const envelope = ['id', 'timestamp', 'event_message', 'message', 'project', 'appname', 'metadata'];

/** How far a typical example may be from the known size of its source. */
const SIZE_MARGIN = 0.1;

function within(prefix: string, names: string[]): string[] {
  return names.map((n) => `${prefix}.${n}`);
}

describe.each(sources.map((s) => s.name))('%s', (source) => {
  const schema = readSchema(source);
  const type = typeOf(schema);

  test('the schema is a record named as the topic', () => {
    expect(type.name).toBe(`sluice.${source}`);
  });

  test('every record and field is documented, every field is nullable with null as its default', () => {
    for (const record of recordsOf(schema)) {
      expect(record.doc, `doc of ${record.name}`).toBeTruthy();
      for (const field of record.fields) {
        expect(field.doc, `${record.name}.${field.name}`).toBeTruthy();
        expect(field.default, `${record.name}.${field.name}`).toBeNull();
        expect(Array.isArray(field.type) && field.type[0], `${record.name}.${field.name}`).toBe('null');
      }
    }
  });

  test('every known field has its place', () => {
    const missing = [...envelope, ...within('metadata', known[source].metadata)].filter(
      (path) => findField(schema, path) === undefined,
    );
    expect(missing).toEqual([]);
  });

  test('there is one example of each case', () => {
    expect(readdirSync(join(folder, 'examples', source)).toSorted()).toEqual(cases.map((c) => `${c}.json`).toSorted());
  });

  test.each(cases)('the example %s survives Avro and back', (name) => {
    const example = readExample(source, name);
    expect(withoutNulls(plain(type.fromBuffer(type.toBuffer(example))))).toEqual(withoutNulls(example));
  });

  test('the typical example has the size of real events', () => {
    const example = readExample(source, 'typical');
    const [json, binary] = known[source].bytes;
    const jsonBytes = Buffer.byteLength(JSON.stringify(example));
    const avroBytes = type.toBuffer(example).length;
    expect(Math.abs(jsonBytes / json - 1), `${jsonBytes} bytes of JSON, real events ${json}`).toBeLessThanOrEqual(
      SIZE_MARGIN,
    );
    expect(Math.abs(avroBytes / binary - 1), `${avroBytes} bytes of Avro, real events ${binary}`).toBeLessThanOrEqual(
      SIZE_MARGIN,
    );
  });

  test('the all-null example names every declared field, and only the project has a value', () => {
    const example = readExample(source, 'all-null');
    const values: Json[] = [];
    const visit = (record: RecordSchema, value: { [key: string]: Json }): void => {
      expect(Object.keys(value), `fields of ${record.name}`).toEqual(record.fields.map((f) => f.name));
      for (const field of record.fields) {
        const inner = (field.type as AvroSchema[]).find(isRecord);
        const content = value[field.name] ?? null;
        if (inner) visit(inner, content as { [key: string]: Json });
        else if (content !== null) values.push(content);
      }
    };
    visit(schema, example);
    expect(values).toEqual([expect.stringMatching(/^[a-z]{20}$/)]);
  });

  test('the self-hosted example has sorted keys and an RFC 3339 timestamp', () => {
    const text = readText('examples', source, 'self-hosted.json');
    const sorted = (value: Json): Json => {
      if (Array.isArray(value)) return value.map(sorted);
      if (value === null || typeof value !== 'object') return value;
      return Object.fromEntries(
        Object.entries(value)
          .toSorted(([a], [b]) => (a < b ? -1 : 1))
          .map(([k, v]) => [k, sorted(v)]),
      );
    };
    const example = JSON.parse(text) as { [key: string]: Json };
    expect(`${JSON.stringify(sorted(example), null, 2)}\n`).toBe(text);
    expect(example['timestamp']).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/);
  });

  test('a field added by the rules is read by old readers, and new readers read old data', () => {
    const added: RecordSchema = {
      ...schema,
      fields: [{ name: 'added_later', type: ['null', 'string'], default: null, doc: 'new' }, ...schema.fields],
    };
    const newer = typeOf(added);
    const example = readExample(source, 'typical');
    const oldData = type.toBuffer(example);
    const newData = newer.toBuffer({ ...example, added_later: 'x' });
    expect(withoutNulls(plain(newer.fromBuffer(oldData, newer.createResolver(type))))).toEqual(withoutNulls(example));
    expect(withoutNulls(plain(type.fromBuffer(newData, type.createResolver(newer))))).toEqual(withoutNulls(example));
  });

  test('every earlier schema can still be read', () => {
    const earlier = join(folder, 'earlier', source);
    const files = existsSync(earlier) ? readdirSync(earlier) : [];
    for (const file of files)
      type.createResolver(typeOf(JSON.parse(readFileSync(join(earlier, file), 'utf8')) as RecordSchema));
    expect(files.every((f) => f.endsWith('.avsc'))).toBe(true);
  });
});

test('a self-hosted edge event has no url, host or search', () => {
  const { metadata } = readExample('edge_logs', 'self-hosted');
  expect(Object.keys((metadata as { request: object }).request)).toEqual(['headers', 'method', 'path', 'protocol']);
});

test('project references in the examples are 20 lower-case letters', () => {
  for (const { name } of sources) {
    const text = JSON.stringify(readExample(name, 'typical'));
    expect(text).toMatch(/"[a-z]{20}"/);
  }
});
