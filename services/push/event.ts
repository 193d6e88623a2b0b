import { createEventReader, type EventReader, type TimeRange } from '../../common/evaluate/event.ts';
import type { KnownSource } from '../../common/sources.ts';

/** An event that may go to Kafka. */
export interface PushedEvent {
  /**
   * The project that it is stored under, and the key of its record: a string, or a number as it is written; null: an
   * edge event that has a url instead.
   */
  readonly project: string | null;
  /** of an edge event */
  readonly url: string | undefined;
  readonly value: Buffer;
}

/** The longest project, bytes: it is the key of the event's record in Kafka. */
export const MAX_PROJECT_BYTES = 256;
/** Longer ones are no hosts: DNS ends at 253 characters. */
const MAX_HOST = 512;
/** Host, port and user of a url, with or without a scheme, which is shorter than a reference. */
const AUTHORITY = /^\s*(?:[A-Za-z][A-Za-z0-9+-]{0,18}:)?[/\\]*([^/\\?#]*)/;
/** A project reference has so many lower-case letters. */
const REFERENCE = 20;

/** Whether the time of an event is too old or too far ahead is decided when it is ingested. */
const ANY_TIME: TimeRange = { earliest: -Infinity, latest: Infinity };

const readers = new Map<KnownSource, EventReader>();

/**
 * Returns an event of a source, or why it is refused, in a sentence for the caller. Refused is what ingest would make a
 * dead letter of, by the same rules,
 * but for its time being out of range, and a project longer than MAX_PROJECT_BYTES. Takes time in proportion to the
 * text, whatever it holds.
 */
export function readEvent(
  text: string,
  source: KnownSource,
  maxEventBytes: number,
): PushedEvent | { readonly mistake: string } {
  const value = Buffer.from(text);
  // first: what is longer need not be looked at
  if (value.length > maxEventBytes) return { mistake: `is larger than ${maxEventBytes} bytes` };
  if (!text.startsWith('{')) return { mistake: 'is not a JSON object' };
  let reader = readers.get(source);
  if (reader === undefined) readers.set(source, (reader = createEventReader(source)));
  switch (reader.read(value, 0, value.length, 0, ANY_TIME)) {
    case 'malformed_json':
      return { mistake: `is ${reader.detail}` };
    case 'missing_project':
      return { mistake: `has no ${source.project}` };
    case 'bad_timestamp':
    case 'timestamp_out_of_range':
      return { mistake: 'has a timestamp that is none' };
    case undefined:
      break;
  }
  const project = reader.textAt(reader.nodes.project, true) ?? '';
  if (Buffer.byteLength(project) > MAX_PROJECT_BYTES)
    return { mistake: `has a ${source.project} of more than ${MAX_PROJECT_BYTES} bytes` };
  return { project: project === '' ? null : project, url: reader.textAt(reader.nodes.orText, false), value };
}

/**
 * Whether a key that is limited to projects may push the event: its project must equal one of them byte for byte.
 * An edge event without one belongs to whoever's reference its url contains, so such a key may not push it.
 */
export function mayPush(projects: readonly string[], { project }: PushedEvent): boolean {
  return projects.length === 0 || (project !== null && projects.includes(project));
}

/**
 * Whether the host of an edge event's url contains a project reference that is none of `projects`. usage.api-counts
 * counts a request for every
 * reference that its url contains, so a key limited to projects could count for others. A host longer than any real one
 * counts as naming another.
 */
export function namesAnother(projects: readonly string[], { url }: PushedEvent): boolean {
  if (projects.length === 0 || url === undefined) return false;
  const [authority = ''] = AUTHORITY.exec(url)?.slice(1) ?? [];
  if (authority.length > MAX_HOST) return true;
  for (const [letters] of authority.matchAll(/[a-z]{20,}/g)) {
    for (let from = 0; from + REFERENCE <= letters.length; from++)
      if (!projects.includes(letters.slice(from, from + REFERENCE))) return true;
  }
  return false;
}
