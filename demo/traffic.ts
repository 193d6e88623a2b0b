import type { SourceName } from '../common/sources.ts';
import { incidentOfSlot, SLOT_MICROS, type Incident, type IncidentKind } from './incidents.ts';
import { createPopulation, type Population } from './population.ts';
import { createRandom, weighted, type Random, type Weights } from './random.ts';
import { authLog } from './shapes/auth_logs.ts';
import type { Draft } from './shapes/draft.ts';
import { edgeLog } from './shapes/edge_logs.ts';
import { functionEdgeLog } from './shapes/function_edge_logs.ts';
import { functionLog } from './shapes/function_logs.ts';
import { pgbouncerLog } from './shapes/pgbouncer_logs.ts';
import { postgresLog } from './shapes/postgres_logs.ts';
import { postgrestLog } from './shapes/postgrest_logs.ts';
import { realtimeLog } from './shapes/realtime_logs.ts';
import { storageLog } from './shapes/storage_logs.ts';
import { writeTimestamp, type Notation } from './timestamps.ts';
import type { UrlShape } from './urls.ts';

/**
 * Realistic traffic of the nine sources, as fast as a benchmark needs it and as odd as a test needs it.
 * Pure: the same options and the same calls give the same events; time is an argument, nothing is read from the
 * machine.
 * Measured on 2 busy cores: 260,000 edge events/s as text, 75,000/s written into a buffer as UTF-8 (all of it is
 * ASCII).
 */
export interface TrafficOptions {
  /** same seed, same projects, functions and clients */
  readonly seed: number;
  /** same seed and same run, same events; another run has other events of the same projects. 0 by default */
  readonly run?: number;
  /** how many projects take part; the busiest has many times the traffic of the median one */
  readonly projects: number;
  readonly functionsPerProject: number;
  /** how often each source; naturalShares by default, a source left out does not occur */
  readonly shares?: Weights<SourceName>;
  /** how timestamps are written; by default microseconds, and UTC text from self-hosted producers */
  readonly notations?: Weights<Notation>;
  /** how ids are written; by default a UUID */
  readonly ids?: Weights<IdForm>;
  /** forms of URL of edge events; by default `platform` only */
  readonly urlShapes?: Weights<UrlShape>;
  /** share of events in the shape of self-hosted producers, 0 to 1 */
  readonly selfHostedShare?: number;
  /** share of invocations without an execution time */
  readonly untimedShare?: number;
  /** share of events without a Kafka key */
  readonly keylessShare?: number;
  /** events are up to this much older than the time of the call, evenly, microseconds: neighbours are out of order */
  readonly disorderMicros?: number;
  /** share of events that are up to lateMicros older than the time of the call */
  readonly lateShare?: number;
  readonly lateMicros?: number;
  /** share of events that are up to aheadMicros newer than the time of the call */
  readonly aheadShare?: number;
  readonly aheadMicros?: number;
  /** now and then something goes wrong with one of the busy projects for a few minutes */
  readonly incidents?: boolean;
}

/**
 * The member `id` with its comma by its form. Without a value the id is to be derived from topic, partition and offset.
 */
const idMembers = {
  uuid: (random) => `"id":"${random.uuid()}",`,
  number: (random) => `"id":${random.uint32()},`,
  empty: () => '"id":"",',
  null: () => '"id":null,',
  absent: () => '',
} as const satisfies Readonly<Record<string, (random: Random) => string>>;
type IdForm = keyof typeof idMembers;
export const idForms = Object.keys(idMembers) as readonly IdForm[];

export interface TrafficEvent {
  readonly source: SourceName;
  /** the project that it belongs to */
  readonly project: string;
  /** key of the Kafka record: the project, or none */
  readonly key: string | null;
  /** what its `timestamp` says, else the record's own timestamp; unix microseconds */
  readonly timestampMicros: number;
  /** the Kafka record's own timestamp, unix milliseconds */
  readonly recordMillis: number;
  /** value of the Kafka record */
  readonly json: string;
}

export interface Traffic {
  readonly population: Population;
  /**
   * The next event, at this time (unix microseconds) apart from the options that shift it; of this source, or of one
   * drawn by the shares.
   */
  next(micros: number, source?: SourceName): TrafficEvent;
}

/** How often each source sends in this platform, per cent: edge and database logs dominate. */
export const naturalShares: Readonly<Record<SourceName, number>> = {
  edge_logs: 46,
  postgres_logs: 30,
  auth_logs: 6,
  function_edge_logs: 5,
  function_logs: 4,
  realtime_logs: 4,
  storage_logs: 3,
  postgrest_logs: 1,
  pgbouncer_logs: 1,
};

const shapes: Readonly<Record<SourceName, (draft: Draft) => string>> = {
  edge_logs: edgeLog,
  postgres_logs: postgresLog,
  auth_logs: authLog,
  function_edge_logs: functionEdgeLog,
  function_logs: functionLog,
  realtime_logs: realtimeLog,
  storage_logs: storageLog,
  postgrest_logs: postgrestLog,
  pgbouncer_logs: pgbouncerLog,
};

/** During a flood this share of all events belongs to the project that is flooded. */
const FLOOD_SHARE = 0.4;
const STREAM_TRAFFIC = 0;

/** What the event says, as JSON.parse reads it (integers beyond 2^53 lose digits). */
export function contentOf(event: TrafficEvent): Record<string, unknown> {
  return JSON.parse(event.json) as Record<string, unknown>;
}

/**
 * A source that is named or has a share must exist: functions for the two function sources. Throws where an option
 * makes no sense.
 */
export function createTraffic(options: TrafficOptions): Traffic {
  const {
    seed,
    run = 0,
    projects,
    functionsPerProject,
    selfHostedShare = 0,
    untimedShare = 0,
    keylessShare = 0,
    disorderMicros = 0,
    lateShare = 0,
    lateMicros = 0,
    aheadShare = 0,
    aheadMicros = 0,
    incidents = false,
  } = options;
  const random = createRandom(seed, STREAM_TRAFFIC, run);
  const population = createPopulation(seed, projects, functionsPerProject);
  const withoutFunctions = functionsPerProject === 0 && { function_edge_logs: 0, function_logs: 0 };
  const drawSource = weighted(options.shares ?? { ...naturalShares, ...withoutFunctions });
  const drawPlatformNotation = weighted<Notation>(options.notations ?? { microseconds: 1 });
  const drawSelfHostedNotation = weighted<Notation>(options.notations ?? { utc_nanoseconds: 1 });
  const drawIdForm = weighted<IdForm>(options.ids ?? { uuid: 1 });
  const drawUrlShape = weighted<UrlShape>(options.urlShapes ?? { platform: 1 });

  let slot = -1;
  let incident: Incident | undefined;
  const incidentAt = (micros: number): Incident | undefined => {
    if (!incidents) return undefined;
    const wanted = Math.floor(micros / SLOT_MICROS);
    if (wanted !== slot) {
      slot = wanted;
      incident = incidentOfSlot(seed, micros, projects);
    }
    return incident !== undefined && micros >= incident.fromMicros && micros < incident.untilMicros
      ? incident
      : undefined;
  };

  return {
    population,
    next: (at, given) => {
      const source = given ?? drawSource(random);
      const micros = shifted(at, random);
      const active = incidentAt(micros);
      const project =
        active?.kind === 'flood' && random.chance(FLOOD_SHARE)
          ? population.project(active.rank)
          : population.drawProject(random);
      const kind: IncidentKind | undefined = active?.rank === project.rank ? active.kind : undefined;
      const selfHosted = random.chance(selfHostedShare);
      const recordMillis = Math.floor(micros / 1000);
      const written = writeTimestamp(
        (selfHosted ? drawSelfHostedNotation : drawPlatformNotation)(random),
        micros,
        recordMillis,
        random.uint32(),
      );
      const json = shapes[source]({
        random,
        population,
        project,
        micros,
        id: idMembers[drawIdForm(random)](random),
        timestamp: written.json === undefined ? '' : `"timestamp":${written.json},`,
        selfHosted,
        urlShape: drawUrlShape(random),
        timed: !random.chance(untimedShare),
        incident: kind,
      });
      return {
        source,
        project: project.ref,
        key: random.chance(keylessShare) ? null : project.ref,
        timestampMicros: written.micros,
        recordMillis,
        json,
      };
    },
  };

  function shifted(at: number, draw: Random): number {
    let micros = at;
    if (disorderMicros > 0) micros -= draw.below(disorderMicros);
    if (draw.chance(lateShare)) micros -= Math.floor(draw.fraction() * lateMicros);
    else if (draw.chance(aheadShare)) micros += Math.floor(draw.fraction() * aheadMicros);
    return micros;
  }
}
