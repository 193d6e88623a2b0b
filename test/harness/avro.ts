import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import avro from 'avsc';
import type { SourceName } from '../../common/sources.ts';
import { createAvroDecoder, type AvroDecoder } from '../../services/ingest/avro/decoder.ts';
import type { Registry } from '../../services/ingest/avro/registry.ts';
import { parseSchema, readKnownSchemas } from '../../services/ingest/avro/schemas.ts';

const schemas = readKnownSchemas(undefined);

/** The decoder of a topic as ingest makes it with default settings. */
export function testDecoder(source: SourceName, { registry }: { registry?: Registry } = {}): AvroDecoder {
  return createAvroDecoder(source, schemas, registry);
}

export interface RecordSchema {
  readonly type: 'record';
  readonly name: string;
  readonly fields: readonly { readonly name: string; readonly type: unknown }[];
}

export const schemaFile = (source: SourceName): string =>
  fileURLToPath(new URL(`../../schemas/${source}.avsc`, import.meta.url));

export function schemaOf(source: SourceName): RecordSchema {
  return JSON.parse(readFileSync(schemaFile(source), 'utf8')) as RecordSchema;
}

/** Writes datums of a schema as other programs do: with avsc. */
export function writerOf(schema: object): (event: unknown) => Buffer {
  const type = avro.Type.forSchema(schema as avro.Schema);
  return (event) => type.toBuffer(event);
}

export function singleObject(schema: object, event: unknown): Buffer {
  return Buffer.concat([singleObjectHeader(schema), writerOf(schema)(event)]);
}

export function singleObjectHeader(schema: object): Buffer {
  const header = Buffer.from('c3010000000000000000', 'hex');
  header.writeBigUInt64LE(parseSchema(JSON.stringify(schema)).fingerprint, 2);
  return header;
}

export function confluent(id: number, datum: Buffer): Buffer {
  const header = Buffer.alloc(5);
  header.writeUInt32BE(id, 1);
  return Buffer.concat([header, datum]);
}
