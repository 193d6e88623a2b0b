import { MAX_JSON_DEPTH, checkJson } from '../../common/json-check.ts';
import { eachElement, members } from '../../common/json-text.ts';
import type { KnownSource } from '../../common/sources.ts';

/** An event that may go to Kafka. */
export interface PushedEvent {
  /** Key of its record: a string, or a number as it is written; null: an edge event that has a url instead. */
  readonly project: string | null;
  /** The project that it will surely be stored under; undefined where there is none, or a number is not written out in full (12e1 is stored as 120). */
  readonly owner: string | undefined;
  /** Of an edge event. */
  readonly url: string | undefined;
  readonly value: Buffer;
}

/** Where an edge event carries its url; one that does is stored also without a project. */
const URL_PATH = ['metadata', 'request', 'url'];
/** The longest project, bytes: it is the key of the event's record in Kafka. */
export const MAX_PROJECT_BYTES = 256;
/** Longer ones are no hosts: DNS ends at 253 characters. */
const MAX_HOST = 512;
/** Host, port and user of a url, with or without a scheme, which is shorter than a reference. */
const AUTHORITY = /^\s*(?:[A-Za-z][A-Za-z0-9+-]{0,18}:)?[/\\]*([^/\\?#]*)/;
/** A project reference has so many lower-case letters. */
const REFERENCE = 20;

/**
 * Returns an event of a source, or why it is refused, in a sentence for the caller. Refused is what would certainly become a dead letter and can be told without
 * the mapping SQL: no JSON object, nested too deeply, too large, without a project, a timestamp that is neither a number nor made of the characters of a date.
 * A project longer than MAX_PROJECT_BYTES is refused too. Everything else is the SQL's to judge: a caller that is told `Logged!` may still find an event
 * among the dead letters. Takes time in proportion to the text, whatever it holds.
 */
export function readEvent(text: string, source: KnownSource, maxEventBytes: number): PushedEvent | { readonly mistake: string } {
  const value = Buffer.from(text);
  // first: what is longer need not be looked at
  if (value.length > maxEventBytes) return { mistake: `is larger than ${maxEventBytes} bytes` };
  const verdict = checkJson(value);
  if (verdict === 'too_deep') return { mistake: `is nested deeper than ${MAX_JSON_DEPTH} levels` };
  if (verdict === 'not_json') return { mistake: 'is not JSON' };
  if (!text.startsWith('{')) return { mistake: 'is not a JSON object' };
  const [projectAt] = source.project;
  const top = members(text, [...new Set(['timestamp', 'metadata', projectAt])]);
  const named = valueAt(top.get(projectAt), source.project.slice(1));
  const project = projectText(named);
  const url = source.name === 'edge_logs' ? urlText(valueAt(top.get('metadata'), URL_PATH.slice(1))) : undefined;
  if (project === '' && url === undefined) return { mistake: `has no ${source.project.join('.')}` };
  if (Buffer.byteLength(project) > MAX_PROJECT_BYTES) return { mistake: `has a ${source.project.join('.')} of more than ${MAX_PROJECT_BYTES} bytes` };
  if (!mayBeTime(top.get('timestamp'))) return { mistake: 'has a timestamp that is none' };
  return { project: project === '' ? null : project, owner: named?.startsWith('"') === true || /^-?\d+$/.test(project) ? project : undefined, url, value };
}

/** The text at a path of names within a value. Where a list stands and an object is looked into, its first element counts. */
function valueAt(value: string | undefined, path: readonly string[]): string | undefined {
  let found = value;
  for (const name of path) {
    if (found?.startsWith('[') === true) found = eachElement(found).next().value ?? undefined;
    if (found === undefined) return undefined;
    found = members(found, [name]).get(name);
  }
  return found;
}

function urlText(text: string | undefined): string | undefined {
  return text?.startsWith('"') === true ? String(JSON.parse(text)) : undefined;
}

/** A string, or a number as its text; '' = none. */
function projectText(text: string | undefined): string {
  if (text?.startsWith('"') === true) return String(JSON.parse(text));
  return text !== undefined && /^[-0-9]/.test(text) ? text : '';
}

/** Necessary for the grammar of timestamps, not sufficient: the grammar stands in clickhouse/sources/envelope/judged.sql only. */
function mayBeTime(text: string | undefined): boolean {
  return text === undefined || text === 'null' || text.includes('\\') || /^("[0-9][-+0-9:.TZ ]*"|[0-9][-+0-9.eE]*)$/.test(text);
}

/**
 * Whether a key that is limited to projects may push the event: its project must equal one of them byte for byte.
 * An edge event without one belongs to whoever's reference its url contains, so such a key may not push it.
 */
export function mayPush(projects: readonly string[], { owner }: PushedEvent): boolean {
  return projects.length === 0 || (owner !== undefined && projects.includes(owner));
}

/**
 * Whether the host of an edge event's url contains a project reference that is none of `projects`. usage.api-counts counts a request for every
 * reference that its url contains, so a key limited to projects could count for others. A host longer than any real one counts as naming another.
 */
export function namesAnother(projects: readonly string[], { url }: PushedEvent): boolean {
  if (projects.length === 0 || url === undefined) return false;
  const [authority = ''] = AUTHORITY.exec(url)?.slice(1) ?? [];
  if (authority.length > MAX_HOST) return true;
  for (const [letters] of authority.matchAll(/[a-z]{20,}/g)) {
    for (let from = 0; from + REFERENCE <= letters.length; from++) if (!projects.includes(letters.slice(from, from + REFERENCE))) return true;
  }
  return false;
}
