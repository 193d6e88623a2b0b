import { crc32 } from 'node:zlib';

/** One Kafka record as ingest sees it. Offsets are numbers: exact up to 2^53, which no partition reaches. */
export interface Record {
  readonly offset: number;
  /** unix milliseconds, -1 = none */
  readonly time: number;
  readonly key: Uint8Array | null;
  readonly value: Buffer | null;
  readonly headers: readonly (readonly [name: string, value: Uint8Array | null])[];
}

/** The closed list of reasons for a dead letter. */
export type Reason =
  | 'not_an_event'
  | 'malformed_json'
  | 'unknown_schema'
  | 'malformed_avro'
  | 'missing_project'
  | 'bad_timestamp'
  | 'timestamp_out_of_range'
  | 'too_large'
  | 'rejected_by_store';

/** What is known of a message before the engine reads it: it goes on to be judged there, or is a dead letter already. */
export type Form = { readonly kind: 'json' } | { readonly kind: 'dead'; readonly reason: Reason; readonly detail: string };

const JSON_FORM: Form = { kind: 'json' };

/** Decides by size and first byte alone; what stands behind the brace is judged by the mapping SQL. */
export function formOf(value: Buffer, maxEventBytes: number): Form {
  if (value.length > maxEventBytes) return { kind: 'dead', reason: 'too_large', detail: `${value.length} bytes` };
  for (let i = 0; i < value.length; i++) {
    const byte = value[i];
    if (byte === 0x7b) return JSON_FORM;
    if (byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09) continue;
    return { kind: 'dead', reason: 'not_an_event', detail: `first byte 0x${byte!.toString(16).padStart(2, '0')}` };
  }
  return { kind: 'dead', reason: 'not_an_event', detail: value.length === 0 ? 'empty' : 'white space only' };
}

/** CRC-32 (ISO 3309, as in gzip) of the value; recognises the last record of a batch when its topic may have been made anew. */
export function checksum(record: Record): number {
  return record.value === null ? 0 : crc32(record.value);
}
