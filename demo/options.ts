import { parseArgs } from 'node:util';
import { withoutHint } from '../common/command/command-line.ts';
import { names } from '../common/config/parsers.ts';
import { EXIT_USAGE, StartError } from '../common/errors.ts';
import { findSource, sources, type SourceName } from '../common/sources.ts';
import { naturalShares, type TrafficOptions } from './traffic.ts';

interface DemoOptions {
  readonly help: boolean;
  readonly json: boolean;
  /** mean, events a second */
  readonly rate: number;
  /** undefined: until stopped */
  readonly durationSeconds: number | undefined;
  readonly curve: boolean;
  readonly traffic: TrafficOptions;
}

export const help = `npm run demo -- [flags]: realistic traffic on all nine topics until stopped (ctrl-C)

  --rate N         events a second, on average (default 100)
  --projects N     number of projects (default 50); a few of them have most of the traffic
  --functions N    functions of each project (default 8)
  --sources A,B    only these sources or aliases (default: all; most events are edge and database logs)
  --seed N         the same seed gives the same projects (default 1). If you give one, it also gives the same events, apart from their times
  --duration S     stop after S seconds
  --curve          more events in the afternoon and fewer at night (UTC), with the same average
  --incidents      now and then an outage, slowness or a flood for one of the busy projects
  --json           a summary as one JSON document on stdout at the end
  --help           this text

Events go to KAFKA_BROKERS, else to the local broker of a running npm start (KAFKA_PORT), into the topics of KAFKA_TOPICS. Missing topics are created.
Do not send to topics that others use: the events are made up, and nothing removes them from Kafka.
Every second, one line on stderr counts the events that were sent, acknowledged by Kafka, and failed.
If a service with ingest answers at HOST and PORT (or METRICS_PORT), the line also counts the events that became visible since the start, whoever sent them.
Its last number is how late the newest events of the slowest source became visible.
`;

/** What real producers do wrong or differently, in about the shares in which they do. */
const ordinaryOddities = {
  urlShapes: {
    platform: 955,
    custom_domain: 25,
    percent_encoded: 8,
    foreign_reference: 8,
    long_letters: 2,
    upper_case: 1,
    several_families: 1,
  },
  selfHostedShare: 0.01,
  untimedShare: 0.005,
  disorderMicros: 800_000,
  lateShare: 0.002,
  lateMicros: 600_000_000,
} as const satisfies Partial<TrafficOptions>;

/**
 * Reads the flags. `run` tells this run's events from those of others where no seed is given. Throws one StartError
 * that lists every mistake.
 */
export function readOptions(args: readonly string[], run: number): DemoOptions {
  const mistakes: string[] = [];
  let parsed;
  try {
    parsed = parseArgs({
      args: [...args],
      options: {
        rate: { type: 'string' },
        projects: { type: 'string' },
        functions: { type: 'string' },
        sources: { type: 'string' },
        seed: { type: 'string' },
        duration: { type: 'string' },
        curve: { type: 'boolean' },
        incidents: { type: 'boolean' },
        json: { type: 'boolean' },
        help: { type: 'boolean', short: 'h' },
      },
    });
  } catch (error) {
    throw new StartError(`${withoutHint(error as Error)}\n\n${help}`, { exitCode: EXIT_USAGE });
  }
  const { values } = parsed;
  const integer = (
    name: 'rate' | 'projects' | 'functions' | 'seed' | 'duration',
    byDefault: number,
    min: number,
    max: number,
  ): number => {
    const text = values[name];
    if (text === undefined) return byDefault;
    const n = Number(text);
    if (/^\d+$/.test(text) && n >= min && n <= max) return n;
    mistakes.push(`--${name} is ${JSON.stringify(text)}; use an integer from ${min} to ${max}`);
    return byDefault;
  };
  const rate = integer('rate', 100, 1, 1_000_000);
  const projects = integer('projects', 50, 1, 1_000_000);
  const functionsPerProject = integer('functions', 8, 1, 1000);
  const seed = integer('seed', 1, 0, Number.MAX_SAFE_INTEGER);
  const duration = integer('duration', 0, 1, 31_536_000);
  const chosen = names(values.sources ?? '').flatMap((name): SourceName[] => {
    const source = findSource(name);
    if (source !== undefined) return [source.name];
    mistakes.push(`--sources has ${JSON.stringify(name)}; use ${sources.map((s) => s.name).join(', ')}`);
    return [];
  });
  if (mistakes.length > 0)
    throw new StartError(
      `${mistakes.length === 1 ? 'a flag is' : `${mistakes.length} flags are`} wrong:\n${mistakes.map((m) => `  ${m}`).join('\n')}`,
      { exitCode: EXIT_USAGE },
    );
  const shares =
    chosen.length === 0 ? naturalShares : Object.fromEntries(chosen.map((name) => [name, naturalShares[name]]));
  return {
    help: values.help ?? false,
    json: values.json ?? false,
    rate,
    durationSeconds: values.duration === undefined ? undefined : duration,
    curve: values.curve ?? false,
    traffic: {
      ...ordinaryOddities,
      seed,
      run: values.seed === undefined ? run : 0,
      projects,
      functionsPerProject,
      shares,
      incidents: values.incidents ?? false,
    },
  };
}
