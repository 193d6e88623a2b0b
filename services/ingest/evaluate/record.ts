import { crc32 } from 'node:zlib';
import { isBlank } from '../../../common/json-text.ts';

/** One Kafka record as ingest sees it. Offsets are numbers: exact up to 2^53, which no partition reaches. */
export interface Record {
  readonly offset: number;
  /** unix milliseconds, -1 = none */
  readonly time: number;
  readonly key: Uint8Array | null;
  /** a fetched record cuts a new one each time it is asked for */
  readonly value: Buffer | null;
  readonly headers: readonly (readonly [name: string, value: Uint8Array | null])[];
  /** only the beginning of the value is here: the record is larger than a fetch may hold */
  readonly isCut?: boolean;
}

/** Where the records of a batch stand. */
export interface BatchPlace {
  readonly topic: string;
  readonly partition: number;
  readonly incarnation: number;
  readonly batchLast: number;
}

/** The closed list of reasons for a dead letter. */
export const reasons = [
  'not_an_event',
  'malformed_json',
  'unknown_schema',
  'malformed_avro',
  'missing_project',
  'bad_timestamp',
  'timestamp_out_of_range',
  'too_large',
] as const;
export type Reason = (typeof reasons)[number];

/** Why a message is a dead letter. */
export interface Refusal {
  readonly reason: Reason;
  readonly detail: string;
}

/** How the event of a message is written. */
export type Form = 'json' | 'singleObject' | 'confluent' | 'raw';

/**
 * Decides by size and first bytes alone; what stands behind them is read by the Avro decoder and the scanner. rawAvro:
 * every message of the topic is an Avro datum and nothing else.
 */
export function formOf(value: Buffer, maxEventBytes: number, rawAvro: boolean): Form | Refusal {
  if (value.length > maxEventBytes) return { reason: 'too_large', detail: `${value.length} bytes` };
  if (value.length === 0) return { reason: 'not_an_event', detail: 'empty' };
  if (rawAvro) return 'raw';
  if (value[0] === 0x00) return 'confluent';
  if (value[0] === 0xc3 && value[1] === 0x01) return 'singleObject';
  for (let i = 0; i < value.length; i++) {
    const byte = value[i]!;
    if (byte === 0x7b) return 'json';
    if (isBlank(byte)) continue;
    return { reason: 'not_an_event', detail: `first byte 0x${byte.toString(16).padStart(2, '0')}` };
  }
  return { reason: 'not_an_event', detail: 'white space only' };
}

/**
 * A checksum is of at most so many bytes. Of a larger record, ingest may keep more or less of the value: as much as
 * KAFKA_MAX_DECOMPRESSED_BYTES says, 32 MiB at least.
 */
export const CHECKED_BYTES = 16 * 1024 * 1024;

/**
 * CRC-32 (ISO 3309, as in gzip) of the value; recognises a record when its topic may have been recreated.
 */
export function checksum(record: Record): number {
  return record.value === null ? 0 : crc32(record.value.subarray(0, CHECKED_BYTES));
}
