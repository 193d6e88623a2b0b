import { benchBesideIngest } from './beside-ingest.ts';
import { benchCached } from './cached.ts';
import { benchCluster } from './cluster.ts';
import { benchEvaluate } from './evaluate.ts';
import { benchFreshness } from './freshness.ts';
import { benchFsync } from './fsync.ts';
import { benchIngest, benchSmoke } from './ingest.ts';
import { benchMemory } from './memory.ts';
import { benchQuantiles } from './quantiles.ts';
import { benchQuery } from './query.ts';
import { benchRecovery } from './recovery.ts';
import { benchRollups } from './rollups.ts';
import { benchScaleOut } from './scale-out.ts';
import { benchScale } from './scale.ts';
import { benchSharedCache } from './shared-cache.ts';
import { benchStart } from './start.ts';
import { benchUpkeep } from './upkeep.ts';

/**
 * One command for every measurement: `npm run bench -- <name>`; each prints a table, or with --json one document
 * (report.ts), and ends within a few minutes.
 */
const benches: Readonly<Record<string, () => Promise<void>>> = {
  start: benchStart,
  ingest: benchIngest,
  smoke: benchSmoke,
  evaluate: benchEvaluate,
  freshness: benchFreshness,
  memory: benchMemory,
  fsync: benchFsync,
  recovery: benchRecovery,
  cached: benchCached,
  query: benchQuery,
  'beside-ingest': benchBesideIngest,
  quantiles: benchQuantiles,
  rollups: benchRollups,
  upkeep: benchUpkeep,
  scale: benchScale,
  cluster: benchCluster,
  'scale-out': benchScaleOut,
  'shared-cache': benchSharedCache,
};

const name = process.argv[2] ?? '';
const bench = benches[name];
if (bench === undefined) {
  process.stderr.write(`npm run bench -- ${Object.keys(benches).join(' | ')} [--json]\n`);
  process.exitCode = 64;
} else {
  await bench();
}
