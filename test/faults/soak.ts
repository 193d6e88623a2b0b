import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { createRandom } from '../../demo/random.ts';
import { reconcile } from '../../services/ingest/operate/reconcile.ts';
import { compressions, startOwnBroker, type OwnBroker } from '../harness/kafka.ts';
import type { Fault } from '../harness/clickhouse-face.ts';
import { openFace, type FaceEngine } from './face-engine.ts';
import { endIngestChildren, startIngestChild, steps, type At, type IngestChild } from './ingest-child.ts';
import { createWorld, type World } from './ledger.ts';

/**
 * npm run soak [-- --minutes 10 --seed N] Random faults, one on top of another, while events flow. Up to three ingest
 * processes on one ClickHouse are killed, stopped, woken and started, each with other settings; their clocks jump;
 * another consumer group takes over. Statements fail or get no answer. ClickHouse and the broker are killed. `faultsOf`
 * lists all of them; the run prints how often each happened.
 * At the end everything runs out, and the ledger is printed: what Kafka acknowledged beside what stands in the tables.
 * Exit code 1 if it is not exact, or if there was no message or no fault: then the run proves nothing.
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

type Faults = Readonly<Record<string, () => Promise<void> | void>>;

interface System {
  readonly broker: OwnBroker;
  readonly engine: FaceEngine;
  readonly world: World;
  readonly ingest: Ingest;
}

/** The ingest processes, of one consumer group at a time. */
interface Ingest {
  readonly start: (at?: At) => void;
  readonly live: () => IngestChild[];
  readonly changeGroup: () => void;
}

function createIngest(engine: FaceEngine, world: World): Ingest {
  const processes: IngestChild[] = [];
  const groups = [world.groupId, `${world.groupId}-other`] as const;
  let group: string = groups[0];
  return {
    start(at) {
      const env = { ...world.env, ...engine.env, ...settingsOfOneLife(), KAFKA_GROUP_ID: group };
      processes.push(startIngestChild({ env, sessionTimeoutMs: 4_000, at }));
    },
    live: () => processes.filter((p) => !p.hasEnded()),
    changeGroup() {
      group = groups.find((g) => g !== group)!;
    },
  };
}

const faultsOf = ({ broker, engine, ingest: { start, live, changeGroup } }: System): Faults => ({
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
    changeGroup();
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
  statements_without_answer: async () => {
    const fault = { action: pick(['hang', 'hang_after'] as const), match: 'INSERT INTO', times: 1 + random.below(3) };
    await engine.face.inject(fault);
    await sleep(random.below(8_000));
    engine.face.release();
  },
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
});

/** What was done to the system, and to how much traffic. */
interface Done {
  readonly faults: Record<string, number>;
  acknowledged: number;
  failedSends: number;
}

/** Produces and makes faults until the time is over. */
async function strain(system: System): Promise<Done> {
  const { world, ingest } = system;
  const faults = faultsOf(system);
  const done: Done = { faults: {}, acknowledged: 0, failedSends: 0 };
  const produce = async (): Promise<void> => {
    const counts = {
      edge_logs: random.below(400),
      function_edge_logs: random.below(150),
      postgres_logs: random.below(100),
      auth_logs: random.below(40),
      pgbouncer_logs: random.below(5),
    };
    try {
      await world.produce(counts, { compression: pick(compressions) });
      done.acknowledged += Object.values(counts).reduce((sum, count) => sum + count, 0);
    } catch (error) {
      done.failedSends++;
      say(`producer: ${String(error)}`);
    }
  };
  ingest.start();
  let producing = Promise.resolve();
  while (Date.now() < until) {
    producing = producing.then(produce);
    if (random.chance(0.3)) {
      const [name, fault] = pick(Object.entries(faults));
      if (ingest.live().length > 0 || name.startsWith('process_started')) {
        say(name);
        if (name === 'broker_killed') await producing;
        await fault();
        done.faults[name] = (done.faults[name] ?? 0) + 1;
      }
    }
    if (ingest.live().length < 1 || (ingest.live().length < 3 && random.chance(0.1))) ingest.start();
    if (ingest.live().length > 3) pick(ingest.live()).signal('SIGKILL');
    await sleep(200 + random.below(800));
  }
  say('faults are over');
  await producing;
  return done;
}

/** Lets everything run out. Returns what is wrong; empty = exact. */
async function findWrong({ engine, world, ingest }: System): Promise<string[]> {
  await engine.face.inject();
  engine.face.release();
  for (const p of ingest.live()) p.signal('SIGCONT');
  await endIngestChildren();
  ingest.start();
  const wrong: string[] = [];
  try {
    for (const source of ['edge_logs', 'function_edge_logs', 'postgres_logs', 'auth_logs', 'pgbouncer_logs'] as const)
      await world.sentAgain(source, READ_ALL_MS);
    await world.finished(engine.clickhouse, 120_000);
    await world.expectExact(engine.clickhouse);
  } catch (error) {
    wrong.push(error instanceof Error ? error.message : String(error));
  }
  const { partitions, faults } = await reconcile(engine.clickhouse, world.settings.RAW_RETENTION_DAYS);
  console.table(partitions.map(({ topic, ...rest }) => ({ topic: topic.split('.')[0], ...rest })));
  return [...wrong, ...faults];
}

async function soak(system: System): Promise<boolean> {
  const { faults, ...done } = await strain(system);
  const wrong = await findWrong(system);
  console.table(faults);
  console.table(done);
  if (done.acknowledged === 0) wrong.push('Kafka acknowledged no message');
  if (Object.keys(faults).length === 0) wrong.push('no fault happened');
  for (const text of wrong) say(text);
  const isExact = wrong.length === 0;
  say(
    isExact ? `exact: every message once in its table and in every rollup (seed ${seed})` : `NOT exact (seed ${seed})`,
  );
  return isExact;
}

const ends: (() => Promise<unknown>)[] = [];
let isExact = false;
try {
  const broker = await startOwnBroker();
  ends.push(() => broker.stop());
  const engine = await openFace();
  ends.push(() => engine.close(), endIngestChildren);
  const world = await createWorld({ seed, brokers: broker.brokers, partitions: 3 });
  say(`seed ${seed}, ${values.minutes} minutes, group ${world.groupId}`);
  isExact = await soak({ broker, engine, world, ingest: createIngest(engine, world) });
} finally {
  for (const end of ends.toReversed()) await end().catch((error: unknown) => say(String(error)));
}
process.exit(isExact ? 0 : 1);
