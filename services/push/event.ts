import { eventReaderOf, type TimeRange } from '../../common/evaluate/event.ts';
import type { KnownSource } from '../../common/sources.ts';

export interface PushedEvent {
  /**
   * The project that the row gets, and the key of the Kafka record. A number keeps its digits. Null if an edge event
   * has a url instead of a project.
   */
  readonly project: string | null;
  /** only of edge events */
  readonly url: string | undefined;
  readonly value: Buffer;
}

/** The longest project in bytes, because it becomes the key of the Kafka record. Shorter than ingest's. */
const MAX_PROJECT_BYTES = 256;
/** Longer texts are no hosts: DNS ends at 253 characters. */
const MAX_HOST = 512;
/**
 * A url up to the end of its host, with or without a scheme. URL parsers take no notice of control characters and blanks
 * before it, nor of tabs and line ends in it.
 */
const UP_TO_HOST = /^(?:[^/\\?#]*:|[^/\\?#\w]*)[/\\\t\r\n]*[^/\\?#]*/;
/** The number of lower-case letters in a project reference. */
const REFERENCE = 20;

/** Ingest decides whether the time of an event is too old or too far ahead. */
const ANY_TIME: TimeRange = { earliest: -Infinity, latest: Infinity };

/**
 * Returns an event of a source, or a sentence for the caller that says why it is refused. Refuses what ingest would
 * make a dead letter, by the same rules, and projects longer than MAX_PROJECT_BYTES. Does not check whether the time is
 * in range. The cost is proportional to the length of the text.
 */
export function readEvent(
  text: string,
  source: KnownSource,
  maxEventBytes: number,
): PushedEvent | { readonly mistake: string } {
  const value = Buffer.from(text);
  // first, so that nothing scans what is too large
  if (value.length > maxEventBytes) return { mistake: `is larger than ${maxEventBytes} bytes` };
  if (!text.startsWith('{')) return { mistake: 'is not a JSON object' };
  const reader = eventReaderOf(source);
  const refusal = reader.read(value, 0, ANY_TIME);
  if (refusal === 'malformed_json') return { mistake: `is ${reader.detail}` };
  if (refusal === 'missing_project') return { mistake: `has no ${source.project}` };
  const project = refusal === 'too_large' ? undefined : (reader.textAt(reader.nodes.project, true) ?? '');
  if (project === undefined || Buffer.byteLength(project) > MAX_PROJECT_BYTES)
    return { mistake: `has a ${source.project} of more than ${MAX_PROJECT_BYTES} bytes` };
  if (refusal !== undefined) return { mistake: 'has an invalid timestamp' };
  return { project: project === '' ? null : project, url: reader.textAt(reader.nodes.orText, false), value };
}

/**
 * Returns whether a key that is limited to projects may push the event: the project must equal one of them byte for
 * byte. An edge event without a project belongs to the reference in its url, so such a key may not push it.
 */
export function mayPush(projects: readonly string[], { project }: PushedEvent): boolean {
  return projects.length === 0 || (project !== null && projects.includes(project));
}

/**
 * Returns whether the url of an edge event contains, up to the end of its host, a project reference that is not in
 * `projects`. usage.api-counts counts a request for every reference in its url, so a limited key raises no counts of
 * others by the host. Path and query are not checked (docs/producers.md). A host longer than any real one counts as
 * naming another.
 */
export function namesAnother(projects: readonly string[], { url }: PushedEvent): boolean {
  if (projects.length === 0 || url === undefined) return false;
  const [text = ''] = UP_TO_HOST.exec(url) ?? [];
  if (text.length > MAX_HOST) return true;
  for (const [letters] of text.matchAll(/[a-z]{20,}/g)) {
    for (let from = 0; from + REFERENCE <= letters.length; from++)
      if (!projects.includes(letters.slice(from, from + REFERENCE))) return true;
  }
  return false;
}
