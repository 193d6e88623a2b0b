import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { createRandom } from '../../demo/random.ts';
import { reconcile } from '../../services/ingest/operate/reconcile.ts';
import { compressions, startOwnBroker } from '../harness/kafka.ts';
import type { Fault } from '../harness/clickhouse-face.ts';
import { openFace } from './face-engine.ts';
import { endIngestChildren, startIngestChild, steps, type At, type IngestChild } from './ingest-child.ts';
import { createWorld } from './ledger.ts';

/**
 * npm run soak [-- --minutes 10 --seed N] Random faults, one on top of another, while events flow. Up to three ingest
 * processes on one ClickHouse are killed, stopped, woken and started, each with other settings; their clocks jump;
 * another consumer group takes over. Statements fail in every way. ClickHouse and the broker are killed. At the end
 * everything runs out, and the ledger is printed:
 * what Kafka acknowledged beside what stands in the tables. Exit code 1 where it is not exact.
 */
const { values } = parseArgs({
  options: { minutes: { type: 'string', default: '10' }, seed: { type: 'string', default: String(Date.now() % 1e9) } },
});
const seed = Number(values.seed);
const until = Date.now() + Number(values.minutes) * 60_000;
const random = createRandom(seed, 4);
const pick = <T>(list: readonly T[]): T => list[random.below(list.length)]!;
const say = (text: string): void => {
  process.stdout.write(`${new Date().toISOString().slice(11, 19)} ${text}\n`);
};

const broker = await startOwnBroker();
const engine = await openFace();
const world = await createWorld({ seed, brokers: broker.brokers, partitions: 3 });
const processes: IngestChild[] = [];
const counts: Record<string, number> = {};

const groups = [world.groupId, `${world.groupId}-other`] as const;
let group: string = groups[0];

/** 300,000 records of a topic after half an hour, on a busy machine */
const READ_ALL_MS = 300_000;

const MIB = 1024 ** 2;
/** No verdict on the world's events depends on them: those are small and at most four days old. */
const settingsOfOneLife = (): Record<string, string> => ({
  RAW_RETENTION_DAYS: pick(['10', '30', '90']),
  MAX_EVENT_BYTES: String(pick([1, 8, 16]) * MIB),
  BATCH_MAX_BYTES: String(pick([1, 4, 32]) * MIB),
});
const CLOCKS_AHEAD_MS = [-40 * 60_000, -60_000, 0, 30 * 60_000, 86_400_000, 5 * 86_400_000];

const start = (at?: At): void => {
  const env = { ...world.env, ...engine.env, ...settingsOfOneLife(), KAFKA_GROUP_ID: group };
  processes.push(startIngestChild({ env, sessionTimeoutMs: 4_000, at }));
};

function live(): IngestChild[] {
  return processes.filter((p) => !p.hasEnded());
}

const statementFaults: readonly Fault[] = [
  { action: 'reset' },
  { action: 'cut_request' },
  { action: 'reset_after' },
  { action: 'error_after', code: 1001 },
  { action: 'cut_response' },
  { action: 'error', code: 252 },
  { action: 'error', code: 243 },
  { action: 'delay', ms: 6_000 },
  { action: 'garbage', status: 503 },
];

const faults: Record<string, () => Promise<void> | void> = {
  process_started_to_be_killed: () =>
    start({ step: pick(steps), times: 1 + random.below(8), delayMs: random.below(120) }),
  process_started_to_be_stopped: () =>
    start({
      step: pick(['before_intent', 'before_insert', 'before_commit']),
      times: 1 + random.below(8),
      signal: 'SIGSTOP',
    }),
  process_started_to_commit_late: () =>
    start({
      step: pick(['before_intent', 'before_commit']),
      times: 1 + random.below(8),
      holdMs: 2_000 + random.below(6_000),
    }),
  process_killed: () => pick(live()).signal('SIGKILL'),
  process_terminated: () => pick(live()).signal('SIGTERM'),
  process_stopped: () => pick(live()).signal('SIGSTOP'),
  clock_jumps: () => pick(live()).setClock(pick(CLOCKS_AHEAD_MS)),
  group_changed: () => {
    group = groups.find((g) => g !== group)!;
    start();
  },
  processes_woken: () => {
    for (const p of live()) p.signal('SIGCONT');
  },
  statements_fail: () =>
    engine.face.inject(
      ...Array.from({ length: 6 }, () => ({
        ...pick(statementFaults),
        match: pick(['INSERT INTO', '_logs`', 'INSERT INTO `batches`', 'SELECT']),
        times: 1 + random.below(3),
      })),
    ),
  clickhouse_killed: async () => {
    await engine.face.kill();
    await sleep(random.below(5_000));
    await engine.restart();
  },
  clickhouse_unreachable: async () => {
    await engine.face.down();
    await sleep(random.below(8_000));
    await engine.face.up();
  },
  broker_killed: async () => {
    await broker.kill();
    await sleep(random.below(4_000));
    await broker.restart();
  },
};

say(`seed ${seed}, ${values.minutes} minutes, group ${world.groupId}`);
start();
let producing: Promise<void> = Promise.resolve();
while (Date.now() < until) {
  producing = producing
    .then(() =>
      world.produce(
        {
          edge_logs: random.below(400),
          function_edge_logs: random.below(150),
          postgres_logs: random.below(100),
          auth_logs: random.below(40),
          pgbouncer_logs: random.below(5),
        },
        { compression: pick(compressions) },
      ),
    )
    .catch((error: unknown) => say(`producer: ${String(error)}`));
  if (random.chance(0.3)) {
    const [name, fault] = pick(Object.entries(faults));
    if (live().length > 0 || name.startsWith('process_started')) {
      counts[name] = (counts[name] ?? 0) + 1;
      say(name);
      if (name === 'broker_killed') await producing;
      await fault();
    }
  }
  if (live().length < 1 || (live().length < 3 && random.chance(0.1))) start();
  if (live().length > 3) pick(live()).signal('SIGKILL');
  await sleep(200 + random.below(800));
}

say('faults are over');
await producing;
await engine.face.inject();
for (const p of live()) p.signal('SIGCONT');
await endIngestChildren();
start();
let exact = true;
try {
  for (const source of ['edge_logs', 'function_edge_logs', 'postgres_logs', 'auth_logs', 'pgbouncer_logs'] as const)
    await world.sentAgain(source, READ_ALL_MS);
  await world.finished(engine.clickhouse, 120_000);
  await world.expectExact(engine.clickhouse);
} catch (error) {
  exact = false;
  say(error instanceof Error ? error.message : String(error));
}
const { partitions, faults: wrong } = await reconcile(engine.clickhouse, world.settings.RAW_RETENTION_DAYS);
console.table(partitions.map(({ topic, ...rest }) => ({ topic: topic.split('.')[0], ...rest })));
console.table(counts);
for (const text of wrong) say(text);
say(
  exact && wrong.length === 0
    ? `exact: every message once in its table and in every rollup (seed ${seed})`
    : `NOT exact (seed ${seed})`,
);
await endIngestChildren();
await engine.close();
await broker.stop();
process.exit(exact && wrong.length === 0 ? 0 : 1);
