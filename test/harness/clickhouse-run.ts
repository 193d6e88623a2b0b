import type { Profile } from './clickhouse-profile.ts';
import type { ServerVersion } from './clickhouse-library.ts';

/**
 * What a project of vitest.config.ts runs on, in its TEST_CLICKHOUSE: `embedded`, a server by version and profile, or a
 * cluster.
 */
export type Run = 'embedded' | typeof PAIR | typeof SHARDS | `${ServerVersion} ${Profile}`;

/** Two replicas of one shard (clickhouse-cluster.ts). */
const PAIR = '25.8 pair';
/** Two shards of one replica each. */
export const SHARDS = '25.8 shards';
/** Their shape. */
export const CLUSTERS: ReadonlyMap<string, { readonly shards: number; readonly replicas: number }> = new Map([
  [PAIR, { shards: 1, replicas: 2 }],
  [SHARDS, { shards: 2, replicas: 1 }],
]);

/** undefined: each test embeds its own engine */
export function serverOf(
  run: string | undefined,
): { readonly version: ServerVersion; readonly profile: Profile } | undefined {
  if (run === undefined || run === 'embedded' || CLUSTERS.has(run)) return undefined;
  const [, version, profile] = /^(25\.8|26\.7) (plain|hostile)$/.exec(run) ?? [];
  if (version === undefined)
    throw new Error(
      `TEST_CLICKHOUSE is ${JSON.stringify(run)}; expected embedded, or 25.8 or 26.7 with plain or hostile`,
    );
  return { version: version as ServerVersion, profile: profile as Profile };
}

/** The kind of server that tests of server mode start; in a run on the embedded engine: the oldest supported one. */
export function serverOfRun(): { readonly version: ServerVersion; readonly profile: Profile } {
  return serverOf(process.env['TEST_CLICKHOUSE']) ?? { version: '25.8', profile: 'plain' };
}
