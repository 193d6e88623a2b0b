import type { AvroDecoder, Refusal } from './avro/decoder.ts';
import type { Frame } from './frames.ts';
import { formOf, type Reason, type Record } from './record.ts';

/** Reads the form of messages: what goes to the mapping SQL as JSON text, and what is a dead letter by its form alone. */
export interface MessageReader {
  /** ids of the schema registry that these records can be decoded with */
  schemaIds(records: readonly Record[]): Promise<readonly number[]>;
  /** The frames of records with a value, with these ids; each is made when it is asked for. Throws RegistryError while the registry is away. */
  frames(records: readonly Record[], schemaIds: readonly number[]): Promise<Iterable<Frame>>;
}

/** maxEventBytes: of a message as it comes; the JSON text that Avro unfolds to is bounded by its decoder. */
export function createMessageReader(avro: AvroDecoder, maxEventBytes: number): MessageReader {
  return {
    async schemaIds(records) {
      const values = records.flatMap(({ value }) => (value !== null && formOf(value, maxEventBytes, avro.rawTopic).kind === 'confluent' ? [value] : []));
      return values.length === 0 ? [] : avro.usableIds(values);
    },

    async frames(records, schemaIds) {
      await avro.load(schemaIds);
      const usable = new Set(schemaIds);
      return { *[Symbol.iterator]() { for (const record of records) yield frameOf(record, usable); } };
    },
  };

  function frameOf(record: Record, schemaIds: ReadonlySet<number>): Frame {
    const value = record.value!;
    const form = formOf(value, maxEventBytes, avro.rawTopic);
    switch (form.kind) {
      case 'dead': return deadLetter(record, form);
      case 'json': return { record, value, original: NOTHING, reason: '', detail: '', probe: '' };
      case 'single_object': return decoded(record, avro.singleObject(value));
      case 'confluent': return decoded(record, avro.confluent(value, schemaIds));
      case 'raw_datum': return decoded(record, avro.raw(value));
    }
  }
}

const NOTHING = Buffer.alloc(0);

function decoded(record: Record, event: Buffer | Refusal): Frame {
  return 'reason' in event ? deadLetter(record, event) : { record, value: event, original: record.value!, reason: '', detail: '', probe: '' };
}

/** The dead letter of a message that the engine refuses: it goes round the mapping's expressions, which could refuse it again. */
export function refusedFrame(record: Record, detail: string): Frame {
  return { record, value: NOTHING, original: record.value!, reason: 'rejected_by_store' satisfies Reason, detail, probe: '' };
}

function deadLetter(record: Record, { reason, detail }: { readonly reason: Reason; readonly detail: string }): Frame {
  return { record, value: record.value!, original: NOTHING, reason, detail, probe: '' };
}
