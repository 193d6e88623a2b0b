import { readdirSync, readFileSync } from 'node:fs';
import { LANE_EVENTS } from '../services/ingest/delivery/ports.ts';

// The table "Log events" of docs/metrics.md: names and levels are read from the code, meanings stand here.

const ROOT = new URL('../', import.meta.url);
/** What a process logs: tests, and the model that `npm run simulate` runs, are none of it. */
const IS_PRODUCT = /^(?!.*\.test\.ts$|ingest\/simulation\/).*\.ts$/;
/** A call of a logger up to its event: its only argument, or the last one. `[level]`: the level is computed. */
const CALL =
  /[lL]ogger(?:\(\))?\??(?:\.(debug|info|warn|error|fatal)|\[level\])\((?:[^]*?,\s+)??(?:[^',(]*\? '([a-z_]+)' : )?'([a-z_]+)',?\s*\)/g;
const LEVELS = ['debug', 'info', 'warn', 'error', 'fatal'];
/** Levels of the events whose calls compute them. */
const COMPUTED: Readonly<Record<string, readonly string[]>> = {
  commit_refused: ['debug', 'warn'],
  kafka_client: ['debug', 'warn', 'error'],
};

/** Returns every event that the product logs, with its levels. */
export function loggedEvents(): ReadonlyMap<string, readonly string[]> {
  const found = new Map<string, Set<string>>();
  const add = (event: string, levels: readonly string[]): void => {
    found.set(event, new Set([...(found.get(event) ?? []), ...levels]));
  };
  for (const folder of ['common', 'services'])
    for (const name of readdirSync(new URL(folder, ROOT), { recursive: true, encoding: 'utf8' })) {
      if (!IS_PRODUCT.test(name)) continue;
      for (const [, level, other, event = ''] of readFileSync(new URL(`${folder}/${name}`, ROOT), 'utf8').matchAll(
        CALL,
      ))
        for (const one of other === undefined ? [event] : [other, event])
          add(one, level === undefined ? (COMPUTED[one] ?? []) : [level]);
    }
  for (const [event, level] of Object.entries(LANE_EVENTS)) add(event, [level]);
  return new Map(
    [...found]
      .toSorted(([a], [b]) => a.localeCompare(b))
      .map(([event, levels]) => [event, LEVELS.filter((level) => levels.has(level))]),
  );
}

/** What an event means, and what to do about it. Without a step there is nothing to do. */
export const meanings: Readonly<Record<string, string>> = {
  address_blocked: '60 failed authentications of one address within a minute: [runbook](runbook.md#a-blocked-address)',
  admin_action: 'A POST or DELETE that needs an admin key was served: [security](security.md#audit)',
  api_key_short: '`API_KEY` has fewer than 16 characters. Use a longer one.',
  available_again: 'A service that a partition waited for answers again.',
  backup_failed: 'A backup or restore failed. `reason` is the text of ClickHouse.',
  batch_recovered: 'A batch that another process left open is completed.',
  batches_abandoned: 'Batches were still in flight when the process had to end. The next start completes them.',
  caller_left: 'A caller closed its connection before the answer.',
  clickhouse_database_missing:
    'A node lacks the database with `_all`. Create it: [scale](scale.md#replace-a-node-add-one)',
  clickhouse_embedded_closed: 'The embedded engine is closed.',
  clickhouse_embedded_opened: 'The embedded engine is open.',
  clickhouse_kill_failed: 'A statement could not be ended at once.',
  clickhouse_node_changed:
    'The process went on to another node. `reason` says why: [scale](scale.md#when-a-node-is-lost)',
  clickhouse_node_completed: 'The rollup service created the tables that a node lacked.',
  clickhouse_node_not_ready:
    'A node cannot be used, and the others go on. `reason` says what to repair: [scale](scale.md#replace-a-node-add-one)',
  clickhouse_server_connected: 'The server answers, and its version is supported.',
  clickhouse_session_replaced: 'The embedded engine replaced a session after a failed statement.',
  clickhouse_unavailable:
    'ClickHouse refuses or does not answer; it is retried. See [SluiceStalled](runbook.md#sluicestalled)',
  clickhouse_version_changed: 'The server was upgraded or downgraded while the process ran.',
  clickhouse_write_may_still_run:
    'An insert was given up, and the server did not confirm its end. Recovery looks before it writes.',
  clickhouse_write_running: 'A long insert still makes progress.',
  clock_differs:
    'The clock of ingest differs from that of ClickHouse: [SluiceClockDiffers](runbook.md#sluiceclockdiffers)',
  command_failed: 'A command that an operator sent to `npm start` failed.',
  commit_refused: 'Kafka refused a commit, which is repeated: [SluiceCommitsRefused](runbook.md#sluicecommitsrefused)',
  console_sample_failed: 'The console lacks one step of its series.',
  console_store_unavailable: 'The console could not read ClickHouse, and shows its last facts.',
  consumer_crashed: 'The Kafka client ended. With `restart` true it joins again; otherwise the process ends.',
  data_folder_readable_by_others: '`DATA_DIR` belongs to another user and is open to others. Close it: mode 700.',
  endpoints_reloaded: 'SIGHUP: the definitions were read again.',
  endpoints_reload_failed: 'SIGHUP: a definition is wrong, so the old ones stay. `err` names file and line.',
  failed: 'A defect, or a state that the process cannot handle. It ends with exit code 1. Report it.',
  fsync_set: 'Tables got the settings of `FSYNC`.',
  group_joined: 'This process joined the consumer group. Many such lines: a process restarts, or sessions expire.',
  group_not_left_in_time: 'Kafka did not confirm the leave. Others get the partitions when the session expires.',
  inserts_resumed: 'A stuck topic is written again.',
  inserts_stuck: 'Nothing of a topic was stored for 10 s: [delivery](delivery.md#tables-that-cannot-be-written)',
  intent_dropped: 'An announced batch fits neither the log nor the stored rows. Ingest goes by these instead.',
  kafka_client: 'A line of the Kafka client, in `detail`. Errors show why it fetches nothing.',
  kafka_image_fetching: 'Docker fetches the image of the local broker.',
  kafka_jars_fetched: 'Progress of the jars of the local broker.',
  kafka_jars_fetching: 'Maven fetches the jars of the local broker.',
  kafka_unavailable: 'The brokers do not answer. Check `KAFKA_BROKERS` and the logs of the brokers.',
  key_use_update_failed: 'The last-used time of keys could not be written. It is retried.',
  keys_load_failed: 'The keys could not be read. Those that are known stay valid for at most one hour.',
  keys_load_recovered: 'The keys were read again.',
  lane_over: 'This process gave a partition away.',
  local_broker_found: 'A local broker that still ran is used again.',
  local_broker_replaced: 'A local broker with other settings was stopped.',
  local_broker_started: 'The local broker answers.',
  merge_hold_failed: 'Merges of the embedded engine could not be held or released. A restart releases them.',
  messages_not_acknowledged: 'Kafka did not acknowledge pushed events. Their callers got 503 or 413.',
  migration_applied: 'A migration is complete.',
  migration_statement_applied_before: 'A statement of a migration was applied by a run that was cut off.',
  offsets_gone:
    'Kafka no longer had these offsets, so their events are lost: [runbook](runbook.md#events-lost-in-kafka)',
  orphan_rows_found: 'Rows of a batch without its announcement or ledger row. Ingest completes the batch.',
  partition_claimed: 'Our consumer group may write the partition now.',
  partition_expired: 'A day or period past its retention was dropped.',
  partition_paused: 'Too many bad messages: [SluicePartitionPaused](runbook.md#sluicepartitionpaused)',
  partition_resumed: 'The pause of a partition is over.',
  partition_taken: 'This process took a partition, from offset `next`.',
  query_listening: 'The HTTP service accepts connections.',
  record_batch_unreadable:
    'Kafka returned bytes that are no valid record batch. Its partition waits. Check the disk of the broker.',
  redis_answer_refused: 'An answer in Redis lacks our signature: [runbook](runbook.md#trouble-with-redis)',
  redis_command_failed: 'Redis answered with an error, or not within 500 ms. The process used its own cache.',
  redis_recovered: 'Redis answers again.',
  redis_unavailable: 'Redis does not answer: [runbook](runbook.md#trouble-with-redis)',
  registry_unavailable: 'The schema registry does not answer: [SluiceStalled](runbook.md#sluicestalled)',
  request_answered: 'One request, with status, cache and duration.',
  request_failed:
    'A request got a 5xx. Level error: a 500, which is a defect. See [SluiceErrors](runbook.md#sluiceerrors)',
  request_refused: 'A request got a 4xx. `code` says why.',
  requery_failed: 'A cached answer could not be renewed in the background. Callers get the old one until it expires.',
  retention_below_tiers: '`RAW_RETENTION_DAYS` is less than the 90 days that PAYG and ENTERPRISE expect.',
  rollup_admitted: 'A new version of a rollup is known. `pending` periods must be built.',
  rollup_build_progress: 'One more period of history is built.',
  rollup_complete: 'All periods of a version are built.',
  rollup_days_compared: 'The nightly comparison of a rollup ended, with `asked` repairs.',
  rollup_differs:
    'The audit found a difference and requested a repair. Often a batch was killed; then `rollup_repaired` follows.',
  rollup_not_compared: 'Nobody finishes these batches. Start ingest with their topics in `KAFKA_TOPICS`.',
  rollup_period_began: 'New batches go to a new period.',
  rollup_period_built: 'A period of a rollup was built from raw.',
  rollup_period_busy: 'Batches arrived during a build of the period. It is retried.',
  rollup_published: 'Queries read this version of a rollup.',
  rollup_repair_failed: 'A rollup still differs after a rebuild: [SluiceRollupDiffers](runbook.md#sluicerollupdiffers)',
  rollup_repaired: 'A repair is done.',
  rollup_retired: 'A newer version replaced this one.',
  rollup_source_incomplete:
    'Raw has fewer rows than the ledger: [SluiceRollupSourceIncomplete](runbook.md#sluicerollupsourceincomplete)',
  rollup_waits_for_batches: 'A build waits for batches in flight. If it repeats, start ingest.',
  schema_newer_than_this_build: 'The database was migrated by a newer build. Upgrade this process soon.',
  schema_ready: 'The schema has the version that this process needs, or a newer one.',
  shards_changed: 'The cluster has another number of shards. Restart the process: [scale](scale.md#add-a-shard)',
  stop_deadline_passed:
    'These components did not stop within 9 s, so the process ended without them. The next start completes their work.',
  stopping: 'The process got SIGTERM or SIGINT.',
  table_moved: '`npm run move` copied a table.',
  thread_pool_small:
    'Fewer reads run at once than `QUERY_CONCURRENCY` wants. Raise the environment variable `UV_THREADPOOL_SIZE`.',
  topic_recreated: 'Kafka has another log than the ledger. Ingest reads it from its start, as the next incarnation.',
  topics_created: 'Ingest created missing topics.',
  waiting_for_clickhouse: 'A start waits for ClickHouse. `reason` says why.',
  waiting_for_group: 'Another consumer group has the partition: [SluiceWaitsForGroup](runbook.md#sluicewaitsforgroup)',
  waiting_for_schema: 'A start waits for the rollup service, which migrates.',
};

/** Returns the table, in the order of the names. */
export function logEventsMarkdown(): string {
  return [
    '| event | level | meaning, and what to do |',
    '|---|---|---|',
    ...[...loggedEvents()].map(
      ([event, levels]) => `| \`${event}\` | ${levels.join(', ')} | ${meanings[event] ?? ''} |`,
    ),
  ].join('\n');
}
