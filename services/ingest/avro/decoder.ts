import { eventReaderOf } from '../../../common/evaluate/event.ts';
import { sourceOf, type SourceName } from '../../../common/sources.ts';
import type { Refusal } from '../evaluate/record.ts';
import { RegistryError, type Registry } from './registry.ts';
import type { KnownSchemas, Schema } from './schemas.ts';
import { MalformedAvro, TextTooLarge } from './datum-text.ts';
import { isNamed, isRecord } from './resolution.ts';
import { compile, type Transcode } from './transcode.ts';

/** Ids that one batch may use: they stand in the commit's metadata, of which Kafka takes 4 KiB. */
export const MAX_IDS = 300;
const SINGLE_OBJECT_HEADER_BYTES = 10;
const CONFLUENT_HEADER_BYTES = 5;
/** ids of a registry are positive 32-bit integers */
const MAX_ID = 2 ** 31 - 1;
/** questions to the registry at a time */
const LOOKUPS_AT_A_TIME = 8;
/**
 * After so many refusals a batch asks for no further id. Real batches have a handful of new ids, and nearly all of them
 * are found. But hostile bytes can look like new ids in every message, and the lane holds a write permit while it asks:
 * 1,000 refusals took 7 s of a registry that answers in 50 ms, 50 take 350 ms.
 */
const MAX_REFUSALS = 50;

export type AvroDecoder = ReturnType<typeof createAvroDecoder>;

/**
 * Avro messages of one topic → the JSON text of their events, with the places of its values left in the scanner of the
 * source's reader. maxBytes: of the JSON text, as of the same event in JSON.
 * The reader's schema is the source's present one. A writer's schema that is no record of its name (whatever its
 * namespace), or of one of its aliases, is that of another source or of nothing known here: unknown_schema, though it
 * may be well known itself.
 */
export function createAvroDecoder(source: SourceName, schemas: KnownSchemas, registry?: Registry) {
  const reader = schemas.current[source];
  const ways = new Map<Schema, Transcode | Refusal>();

  return {
    /** A datum of the source's present schema and nothing else. */
    raw: (value: Buffer, maxBytes: number): Buffer | Refusal => decode(reader, value, 0, maxBytes),

    /** C3 01, the writer's schema by its fingerprint (8 bytes, the lowest first), datum */
    singleObject(value: Buffer, maxBytes: number): Buffer | Refusal {
      if (value.length < SINGLE_OBJECT_HEADER_BYTES) return malformed('header cut off');
      const schema = schemas.byFingerprint.get(value.readBigUInt64LE(2));
      if (schema === undefined)
        return unknown(`schema fingerprint ${value.toString('hex', 2, SINGLE_OBJECT_HEADER_BYTES)}`);
      return decode(schema, value, SINGLE_OBJECT_HEADER_BYTES, maxBytes);
    },

    /**
     * 00, the writer's schema by its id in the registry (4 bytes, the highest first), datum; ids outside of `ids` are
     * unknown
     */
    confluent(value: Buffer, maxBytes: number, ids: ReadonlySet<number>): Buffer | Refusal {
      if (value.length < CONFLUENT_HEADER_BYTES) return malformed('header cut off');
      const id = value.readUInt32BE(1);
      if (registry === undefined) return unknown(`schema id ${id}, and there is no SCHEMA_REGISTRY_URL`);
      const known = registry.known(id);
      if (known === undefined) return unknown(`schema id ${id}`);
      if ('detail' in known) return unknown(known.detail);
      if (ids.has(id)) return decode(known.schema, value, CONFLUENT_HEADER_BYTES, maxBytes);
      const way = wayOf(known.schema);
      return typeof way === 'object'
        ? way
        : unknown(
            `schema id ${id} was not announced with its batch: the registry did not have it then, or the batch has more than ${MAX_IDS} schema ids`,
          );
    },

    /**
     * Of the ids in these Confluent messages those whose schema the registry has and this source can read: the
     * commonest MAX_IDS, ascending. It asks for the commonest first, until MAX_REFUSALS are refused.
     * From now on `confluent` needs no registry for them. Throws RegistryError while the registry does not answer.
     */
    async usableIds(values: Iterable<Buffer>): Promise<number[]> {
      if (registry === undefined) return [];
      const counts = countIds(values);
      const commonest = [...counts.keys()].toSorted((a, b) => counts.get(b)! - counts.get(a)!);
      await ask(registry, commonest, isUsable);
      const usable = commonest.filter(isUsable).slice(0, MAX_IDS);
      return usable.toSorted((a, b) => a - b);
    },

    /**
     * The same for ids that were usable before, as far as these messages need them. Throws RegistryError too where one
     * of them is not usable any more.
     */
    async load(ids: readonly number[], values: readonly Buffer[]): Promise<void> {
      const counts = countIds(values);
      const needed = ids.filter((id) => counts.has(id));
      if (registry !== undefined) await ask(registry, needed, isUsable);
      const gone = needed.find((id) => !isUsable(id));
      if (gone === undefined) return;
      throw new RegistryError(
        registry === undefined
          ? `there is no SCHEMA_REGISTRY_URL, and a batch was announced with schema id ${gone}`
          : `the schema registry no longer has schema id ${gone}, with which a batch was announced`,
      );
    },
  };

  function isUsable(id: number): boolean {
    const known = registry?.known(id);
    return known !== undefined && 'schema' in known && typeof wayOf(known.schema) === 'function';
  }

  function wayOf(schema: Schema): Transcode | Refusal {
    let way = ways.get(schema);
    if (way === undefined) ways.set(schema, (way = compiled(schema)));
    return way;
  }

  /** Whatever a schema holds, it ends no process: its messages would come again at each start. */
  function compiled({ type, name }: Schema): Transcode | Refusal {
    if (!isRecord(type) || !isNamed(reader.type, type.name)) return unknown(`schema ${name} is not one of ${source}`);
    try {
      return compile(type, reader.type, eventReaderOf(sourceOf(source)).scanner);
    } catch (error) {
      return unknown(`schema ${name} cannot be read: ${error instanceof Error ? error.message : String(error)}`);
    }
  }

  function decode(schema: Schema, value: Buffer, start: number, maxBytes: number): Buffer | Refusal {
    const way = wayOf(schema);
    if (typeof way === 'object') return way;
    try {
      return way(value, start, maxBytes);
    } catch (error) {
      if (error instanceof MalformedAvro) return malformed(error.message);
      if (error instanceof TextTooLarge) return { reason: 'too_large', detail: error.message };
      throw error;
    }
  }
}

function countIds(values: Iterable<Buffer>): Map<number, number> {
  const counts = new Map<number, number>();
  for (const value of values) {
    const id = value.length < CONFLUENT_HEADER_BYTES ? MAX_ID + 1 : value.readUInt32BE(1);
    if (id <= MAX_ID) counts.set(id, (counts.get(id) ?? 0) + 1);
  }
  return counts;
}

/** Asks for ids in this order, until as many as a batch can use are found, or MAX_REFUSALS are refused. */
async function ask(registry: Registry, ids: readonly number[], isUsable: (id: number) => boolean): Promise<void> {
  const unasked = ids.filter((id) => !registry.keeps(id));
  let usable = 0;
  let refusals = 0;
  for (let i = 0; i < unasked.length && usable < MAX_IDS && refusals < MAX_REFUSALS; i += LOOKUPS_AT_A_TIME) {
    const some = unasked.slice(i, i + LOOKUPS_AT_A_TIME);
    const answers = await Promise.all(some.map((id) => registry.lookup(id)));
    usable += some.filter(isUsable).length;
    // schemas of others are found once and kept: they are no sign of bytes that only look like ids
    refusals += answers.filter((answer) => !('schema' in answer)).length;
  }
}

function unknown(detail: string): Refusal {
  return { reason: 'unknown_schema', detail };
}

function malformed(detail: string): Refusal {
  return { reason: 'malformed_avro', detail };
}
