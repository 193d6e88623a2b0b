import type { IncidentKind } from '../incidents.ts';
import type { Population, Project } from '../population.ts';
import type { Random } from '../random.ts';
import type { UrlShape } from '../urls.ts';

/** What is decided about an event before its source writes it. */
export interface Draft {
  readonly random: Random;
  readonly population: Population;
  readonly project: Project;
  /** when it happened, unix microseconds */
  readonly micros: number;
  /** member `"id":"...",` with its comma, or empty */
  readonly id: string;
  /** member `"timestamp":...,` with its comma, or empty */
  readonly timestamp: string;
  /** the shape that self-hosted producers send */
  readonly selfHosted: boolean;
  readonly urlShape: UrlShape;
  /** false: an invocation without an execution time */
  readonly timed: boolean;
  /** what is wrong with the project just now */
  readonly incident: IncidentKind | undefined;
}

/**
 * An event of the platform: envelope, then metadata. `message` and `metadata` are JSON. Sources whose metadata holds
 * the reference have no `project`.
 */
export function platformEvent(draft: Draft, message: string, metadata: string, withProject: boolean): string {
  return `{${draft.id}${draft.timestamp}"event_message":${message},${withProject ? `"project":"${draft.project.ref}",` : ''}"metadata":${metadata}}`;
}

/** The same as Vector writes it for a self-hosted stack: keys sorted, the container's name. */
export function selfHostedEvent(
  draft: Draft,
  appname: string,
  message: string,
  metadata: string,
  withProject: boolean,
): string {
  return `{"appname":"${appname}","event_message":${message},${draft.id}"metadata":${metadata}${withProject ? `,"project":"${draft.project.ref}"` : ''}${draft.timestamp === '' ? '' : `,${draft.timestamp.slice(0, -1)}`}}`;
}
