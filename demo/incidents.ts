import { createRandom } from './random.ts';

/** What goes wrong for a project for a few minutes. */
export const incidentKinds = ['outage', 'slow', 'flood'] as const;
/**
 * outage: its API answers 5xx, its database refuses; slow: everything takes ten times as long; flood: many requests,
 * refused with 429
 */
export type IncidentKind = (typeof incidentKinds)[number];

export interface Incident {
  readonly kind: IncidentKind;
  /** rank of the project that it hits */
  readonly rank: number;
  readonly fromMicros: number;
  readonly untilMicros: number;
}

const MINUTE = 60_000_000;
/** There is at most one incident in each of these spans of time, microseconds. */
export const SLOT_MICROS = 10 * MINUTE;
/** Share of slots with an incident; it lasts 1 to 4 minutes of the slot's ten. */
const INCIDENT_SHARE = 0.5;
/** The busiest projects are hit, so that it shows. */
const RANKS = 20;
const STREAM_INCIDENT = 3;

/**
 * The incident of the ten minutes around a time (unix microseconds), if there is one: a function of the seed and the
 * time alone.
 */
export function incidentOfSlot(seed: number, micros: number, projectCount: number): Incident | undefined {
  const slot = Math.floor(micros / SLOT_MICROS);
  const random = createRandom(seed, STREAM_INCIDENT, slot);
  if (!random.chance(INCIDENT_SHARE)) return undefined;
  const fromMicros = slot * SLOT_MICROS + random.below(6 * MINUTE);
  return {
    kind: random.pick(incidentKinds),
    rank: random.below(Math.min(RANKS, projectCount)),
    fromMicros,
    untilMicros: fromMicros + MINUTE + random.below(3 * MINUTE),
  };
}
