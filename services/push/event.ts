import { eachElement, members } from '../../common/json-text.ts';
import type { KnownSource } from '../../common/sources.ts';

/** An event that may go to Kafka. */
export interface PushedEvent {
  /** Key of its record: a string, or a number as it is written; null: an edge event that has a url instead. */
  readonly project: string | null;
  /** The project that it will surely be stored under; undefined where there is none, or a number is not written out in full (12e1 is stored as 120). */
  readonly owner: string | undefined;
  readonly value: Buffer;
}

/** Where an edge event carries its url; one that does is stored also without a project. */
const URL_PATH = ['metadata', 'request', 'url'];

/**
 * An event of a source, or why it is refused, in a sentence for the caller. Refused is what would certainly become a dead letter and can be told without
 * the mapping SQL: no JSON object, too large, without a project, a timestamp that is neither a number nor made of the characters of a date.
 * Everything else is the SQL's to judge: a caller that is told `Logged!` may still find an event among the dead letters.
 */
export function readEvent(text: string, source: KnownSource, maxEventBytes: number): PushedEvent | { readonly mistake: string } {
  try {
    JSON.parse(text);
  } catch {
    return { mistake: 'is not JSON' };
  }
  if (!text.startsWith('{')) return { mistake: 'is not a JSON object' };
  const value = Buffer.from(text);
  if (value.length > maxEventBytes) return { mistake: `is larger than ${maxEventBytes} bytes` };
  const named = valueAt(text, source.project.split('.'));
  const project = projectText(named);
  if (project === '' && !(source.name === 'edge_logs' && valueAt(text, URL_PATH)?.startsWith('"') === true)) return { mistake: `has no ${source.project}` };
  if (!mayBeTime(valueAt(text, ['timestamp']))) return { mistake: 'has a timestamp that is none' };
  return { project: project === '' ? null : project, owner: named?.startsWith('"') === true || /^-?\d+$/.test(project) ? project : undefined, value };
}

/** The text at a path of names. Where a list stands and an object is looked into, its first element counts. */
function valueAt(event: string, path: readonly string[]): string | undefined {
  let found: string | undefined = event;
  for (const name of path) {
    if (found?.startsWith('[') === true) found = eachElement(found).next().value ?? undefined;
    if (found === undefined) return undefined;
    found = members(found, [name]).get(name);
  }
  return found;
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
