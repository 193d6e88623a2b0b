import { fileURLToPath } from 'node:url';
import type { SourceName } from '../../common/sources.ts';
import { schemaFile } from './avro.ts';
import { kafkaBrokers, pipe, python } from './kafka.ts';

/**
 * Produces with Confluent's AvroSerializer (Python); the schema of the source is registered by it. Gives the offsets.
 */
export async function produceWithAvroSerializer(
  topic: string,
  source: SourceName,
  registryUrl: string,
  events: readonly unknown[],
): Promise<number[]> {
  const script = fileURLToPath(new URL('confluent-avro-produce.py', import.meta.url));
  const output = await pipe(
    await python(),
    [script, kafkaBrokers().join(','), topic, registryUrl, schemaFile(source)],
    events.map((event) => JSON.stringify(event)).join('\n'),
  );
  return output.trim().split('\n').map(Number);
}
