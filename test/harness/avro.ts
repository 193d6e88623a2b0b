import { createAvroDecoder, type AvroDecoder } from '../../services/ingest/avro/decoder.ts';
import type { Registry } from '../../services/ingest/avro/registry.ts';
import { readKnownSchemas } from '../../services/ingest/avro/schemas.ts';
import type { SourceName } from '../../common/sources.ts';

const schemas = readKnownSchemas(undefined);

/** The decoder of a topic as ingest makes it with default settings. */
export function testDecoder(source: SourceName, { registry, rawTopic = false }: { registry?: Registry; rawTopic?: boolean } = {}): AvroDecoder {
  return createAvroDecoder({ source, schemas, registry, rawTopic, maxEventBytes: 8 * 1024 * 1024 });
}
