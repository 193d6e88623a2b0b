import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { EXIT_CONFIG, StartError } from '../errors.ts';
import { backupPlaces, type BackupPlaces } from './backup-places.ts';
import { contradictions } from './contradictions.ts';
import * as parsers from './parsers.ts';

/**
 * Every setting of every service in one table. Services read their part of it, and the table of docs/settings.md is
 * made from it. No other file reads process.env, except what native code reads there (thread-pool.ts,
 * common/clickhouse/embedded/embedded.ts).
 */
export interface Setting<T> {
  readonly default: T;
  /** how documentation shows the default, if the value itself is not suitable */
  readonly shown?: string;
  readonly unit?: string;
  /** `address`: a URL, of which only user, password and parameters are secret */
  readonly secret?: true | 'address';
  readonly description: string;
  readonly parse: { (text: string): T; readonly range?: string };
}

const setting = <T>(s: Setting<T>): Setting<T> => s;
const optional = <T>(s: Omit<Setting<T>, 'default'>): Setting<T | undefined> =>
  setting<T | undefined>({ default: undefined, shown: 'none', ...s });

/**
 * The upper limit of MAX_EVENT_BYTES, and the lower limit of a fetch: a truncated event is then still recognised as too
 * large.
 */
const LARGEST_EVENT_BYTES = 32 * 1024 * 1024;

export const settingsTable = {
  KAFKA_BROKERS: optional({
    shown: 'local broker',
    description: 'Kafka, `host:port,host:port`',
    parse: parsers.brokers,
  }),
  KAFKA_TOPICS: setting<parsers.Topics>({
    default: parsers.defaultTopics,
    shown: 'source name = topic name',
    description: 'topics with another name: `edge_logs=cloudflare.logs.prod,...`',
    parse: parsers.topics,
  }),
  KAFKA_RAW_AVRO_TOPICS: setting<string[]>({
    default: [],
    shown: 'none',
    description: "topics whose values are raw Avro datums of the source's own schema, `edge_logs,...`",
    parse: parsers.names,
  }),
  SCHEMA_REGISTRY_URL: optional({
    secret: 'address',
    description: "schema registry for messages in Confluent's wire format, `http://user:password@host:8081`",
    parse: parsers.url('http', 'https'),
  }),
  AVRO_SCHEMAS_DIR: optional({
    description: "folder with further writers' schemas, `*.avsc`, for messages in Avro's single-object encoding",
    parse: parsers.folder,
  }),
  KAFKA_TOPIC_PARTITIONS: setting({
    default: 3,
    description: 'number of partitions of topics that sluice creates; existing topics stay as they are',
    parse: parsers.integer(1, 1000),
  }),
  KAFKA_GROUP_ID: setting({ default: 'sluice', description: 'consumer group', parse: parsers.text }),
  KAFKA_SSL: setting({ default: false, description: 'true: use TLS to the brokers', parse: parsers.yesOrNo }),
  KAFKA_SSL_CA: optional({
    shown: "Node's own list",
    description: "PEM file with the authorities of the brokers' certificates",
    parse: parsers.certificateFile,
  }),
  KAFKA_SSL_CERT: optional({
    description: 'PEM file with the client certificate, for brokers that require one',
    parse: parsers.certificateFile,
  }),
  KAFKA_SSL_KEY: optional({ description: 'PEM file with the private key', parse: parsers.privateKeyFile }),
  KAFKA_SASL_MECHANISM: optional({
    description:
      'plain, scram-sha-256 or scram-sha-512; without KAFKA_SSL, plain sends the password readably over the network',
    parse: (value) => parsers.oneOf('plain', 'scram-sha-256', 'scram-sha-512')(value.toLowerCase()),
  }),
  KAFKA_SASL_USERNAME: optional({ description: 'user for SASL', parse: parsers.text }),
  KAFKA_SASL_PASSWORD: optional({ secret: true, description: 'password for SASL', parse: parsers.text }),
  KAFKA_PORT: setting({
    default: 9092,
    description: 'port of the local broker on 127.0.0.1',
    parse: parsers.integer(1, 65535),
  }),
  KAFKA_MAX_DECOMPRESSED_BYTES: setting({
    default: 32 * 1024 * 1024,
    unit: 'bytes',
    description:
      'largest decompressed size of one fetch; the rest is fetched again. Of a larger event only the beginning is kept, as a dead letter (`too_large`)',
    parse: parsers.integer(LARGEST_EVENT_BYTES, 1024 ** 3),
  }),
  BATCH_MAX_BYTES: setting({
    default: 25 * 1024 * 1024,
    unit: 'bytes',
    description:
      'largest insert of a partition with a backlog. All partitions together hold about three times as much, or four times when many begin at once, and up to eight times while some tables cannot be written. With the embedded engine, larger inserts took more memory and gained at most 2 %; 16 MiB took a seventh more CPU per event (bench/README.md)',
    parse: parsers.integer(1024 * 1024, 256 * 1024 * 1024),
  }),
  PUSH_BUFFER_BYTES: setting({
    default: 128 * 1024 * 1024,
    unit: 'bytes',
    description:
      'memory of HTTP push for bodies and events that Kafka has not acknowledged; one key gets at most half. More is refused with 429',
    // half of it takes the largest request, whose pieces are network packets (EVENT_BYTES, PIECE_BYTES)
    parse: parsers.integer(96 * 1024 * 1024, 1024 ** 4),
  }),
  CLICKHOUSE_URL: optional({
    shown: 'embedded engine',
    secret: 'address',
    description:
      'ClickHouse server, `http://user:password@host:8123/database`; with CLICKHOUSE_CLUSTER every node of it, separated by commas',
    parse: parsers.nodes,
  }),
  CLICKHOUSE_CLUSTER: optional({
    description:
      "name of the cluster in the servers' `remote_servers`: the tables are replicated on the nodes of each of its shards ([scale.md](scale.md))",
    parse: parsers.text,
  }),
  CLICKHOUSE_SANDBOX_URL: optional({
    secret: 'address',
    description:
      'the same server with a user without any rights; required with CLICKHOUSE_URL for `sandboxed` endpoints',
    parse: parsers.server,
  }),
  MOVE_FROM_URL: optional({
    shown: 'embedded engine of DATA_DIR',
    secret: 'address',
    description: 'ClickHouse server that `npm run move` copies from, `http://user:password@host:8123/database`',
    parse: parsers.server,
  }),
  CLICKHOUSE_SSL_CA: optional({
    shown: "Node's own list",
    description:
      "PEM file with the authorities of the server's certificate, for an `https` CLICKHOUSE_URL or MOVE_FROM_URL",
    parse: parsers.certificateFile,
  }),
  DATA_DIR: setting({
    default: './data',
    description: 'folder of the embedded ClickHouse, the local broker and the first key',
    parse: parsers.text,
  }),
  BACKUP_PLACES: setting<BackupPlaces>({
    default: {},
    shown: 'none',
    secret: true,
    description:
      "named places that `npm run backup` may write to and read from: `local=/var/backups/sluice,cloud=S3('https://bucket.s3.amazonaws.com/sluice','key','secret')`; also `Disk('disk')` of the server's configuration and `AzureBlobStorage(...)`",
    parse: backupPlaces,
  }),
  CACHE_DIR: setting({
    default: resolve(process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'sluice'),
    shown: '~/.cache/sluice',
    description: "folder of the local broker's jars (54 MB, only without Docker), shared by all data folders",
    parse: parsers.path,
  }),
  JAVA_HOME: optional({
    shown: '`java` on the PATH',
    description: 'Java 17 or newer for the local broker',
    parse: parsers.path,
  }),
  FSYNC: setting({
    default: false,
    description:
      'true: inserts, merges and the local broker wait for the disk, so power loss loses nothing. `npm start` and `npm run rollup` set it on all tables. It costs about 20 ms a batch on a virtual disk',
    parse: parsers.yesOrNo,
  }),
  HOST: setting({ default: '127.0.0.1', description: 'address the HTTP service listens on', parse: parsers.host }),
  PORT: setting({
    default: 4000,
    description: 'port the HTTP service listens on; 0 picks a free one',
    parse: parsers.integer(0, 65535),
  }),
  HTTPS_CERT: optional({
    shown: 'plain HTTP',
    description:
      "PEM file with the HTTP service's certificate and its intermediates; if set, the service speaks TLS only",
    parse: parsers.certificateFile,
  }),
  HTTPS_KEY: optional({ description: 'PEM file with the private key', parse: parsers.privateKeyFile }),
  API_KEY: optional({
    shown: 'created on the first start',
    secret: true,
    description: 'first admin key, valid only while it is set; at least 16 characters, unless HOST is loopback',
    parse: parsers.headerText,
  }),
  METRICS_PORT: optional({
    shown: 'served on PORT',
    description:
      'port for /metrics, /livez and /readyz, on HOST. Without it, query and npm start serve all three on PORT, ingest and rollup none; with it, PORT keeps /livez and /readyz',
    parse: parsers.integer(0, 65535),
  }),
  TRUST_PROXY: setting<parsers.TrustProxy>({
    default: false,
    description:
      "proxies whose X-Forwarded-For is trusted for the caller's address: their number (`1`), or their networks (`10.0.0.0/8,127.0.0.1`)",
    parse: parsers.trustProxy,
  }),
  RATE_LIMIT_PER_KEY: setting({
    default: 0,
    unit: 'requests a minute',
    description: 'limit per key and process; 0 means none',
    parse: parsers.integer(0, 1_000_000),
  }),
  RATE_LIMIT_PER_ADDRESS: setting({
    default: 0,
    unit: 'requests a minute',
    description: 'limit per address (IPv6: per network of 64 bits) and process; 0 means none',
    parse: parsers.integer(0, 1_000_000),
  }),
  ENDPOINTS_DIR: optional({
    description: 'folder with further endpoints, `<name>.sql` and `<name>.yaml` each',
    parse: parsers.folder,
  }),
  QUERY_CONCURRENCY: setting({
    default: 4,
    description: 'concurrent queries; requeries take at most half',
    parse: parsers.integer(1, 1000),
  }),
  QUERY_QUEUE: setting({
    default: 64,
    description: 'queries that may wait for a slot, for 2 s at most; more are refused with 503',
    parse: parsers.integer(0, 100_000),
  }),
  QUERY_TIMEOUT_SECONDS: setting({
    default: 20,
    unit: 'seconds',
    description: 'a longer query is cancelled and answered with 504',
    parse: parsers.integer(1, 55),
  }),
  QUERY_MAX_MEMORY_BYTES: setting({
    default: 1024 ** 3,
    unit: 'bytes',
    description: 'memory limit of one query',
    parse: parsers.integer(1024 ** 2, 1024 ** 4),
  }),
  QUERY_MAX_ROWS_READ: setting({
    default: 1_000_000_000,
    unit: 'rows',
    description: 'limit of rows that one query may read',
    parse: parsers.integer(1, 10 ** 12),
  }),
  ANSWER_CACHE_BYTES: setting({
    default: 64 * 1024 ** 2,
    unit: 'bytes',
    description: 'memory for cached answers',
    parse: parsers.integer(0, 1024 ** 4),
  }),
  REDIS_URL: optional({
    secret: 'address',
    description: 'Redis in which several query services share answers, `redis://host:6379/0`',
    parse: parsers.url('redis', 'rediss'),
  }),
  REDIS_SECRET: optional({
    shown: 'the first admin key',
    secret: true,
    description:
      'secret that signs answers in Redis; services that share answers need the same one, or the same API_KEY',
    parse: parsers.text,
  }),
  RAW_RETENTION_DAYS: setting({
    default: 90,
    unit: 'days',
    description: 'how long raw events are kept; older events become dead letters',
    parse: parsers.integer(1, 3650),
  }),
  ROLLUP_1M_RETENTION_DAYS: setting({
    default: 30,
    unit: 'days',
    description: 'how long rollups per minute are kept; endpoints reach 7 days back',
    parse: parsers.integer(8, 3650),
  }),
  ROLLUP_1H_RETENTION_DAYS: setting({
    default: 400,
    unit: 'days',
    description: 'how long rollups per hour are kept',
    parse: parsers.integer(8, 3650),
  }),
  ROLLUP_BUILD_PERCENT: setting({
    default: 50,
    unit: '%',
    description: 'share of time spent building history into a rollup, on one thread',
    parse: parsers.integer(1, 100),
  }),
  ROLLUP_AUDIT_DAYS: setting({
    default: 2,
    unit: 'days',
    description:
      'days of rollups that are compared with the raw tables every night and an hour after a start; closed minutes are compared every hour',
    parse: parsers.integer(0, 3650),
  }),
  MAX_EVENT_BYTES: setting({
    default: 8 * 1024 * 1024,
    unit: 'bytes',
    description: 'larger events, uncompressed, become dead letters',
    parse: parsers.integer(1024, LARGEST_EVENT_BYTES),
  }),
  BAD_SHARE_PERCENT: setting({
    default: 50,
    unit: '%',
    description:
      'ingest pauses a partition if more than this share of its last messages are dead letters; 100 means never',
    parse: parsers.integer(1, 100),
  }),
  BAD_SHARE_WINDOW: setting({
    default: 10_000,
    unit: 'messages',
    description: 'number of last messages that count for the share; what a partition has fewer counts as good messages',
    parse: parsers.integer(10, 10_000_000),
  }),
  BAD_SHARE_PAUSE_SECONDS: setting({
    default: 300,
    unit: 'seconds',
    description: 'length of the pause; `npm run ingest -- resume` ends it earlier',
    parse: parsers.integer(1, 7 * 86_400),
  }),
  LOG_LEVEL: setting({
    default: 'info',
    description: 'fatal, error, warn, info, debug or trace',
    parse: parsers.oneOf('fatal', 'error', 'warn', 'info', 'debug', 'trace'),
  }),
} as const;

export type SettingName = keyof typeof settingsTable;
export type Settings = { [K in SettingName]: (typeof settingsTable)[K] extends Setting<infer T> ? T : never };

/**
 * Reads the whole table from the environment. An empty or blank variable counts as absent. Throws one StartError (exit
 * code 78) that lists every mistake, without the values of secret settings.
 */
export function readSettings(env: Readonly<Record<string, string | undefined>> = process.env): Settings {
  const mistakes: string[] = [];
  const wrong = new Set<SettingName>();
  const values: Record<string, unknown> = {};
  for (const [name, s] of Object.entries(settingsTable) as [SettingName, Setting<unknown>][]) {
    values[name] = s.default;
    const given = env[name]?.trim() ?? '';
    if (given === '') continue;
    try {
      values[name] = s.parse(given);
    } catch (error) {
      const message = (error as Error).message;
      wrong.add(name);
      mistakes.push(`${name} ${s.secret ? message.replaceAll(given, '***') : message}`);
    }
  }
  const settings = values as Settings;
  mistakes.push(...contradictions(settings, wrong));
  if (mistakes.length > 0)
    throw new StartError(
      `${mistakes.length === 1 ? 'a setting is' : `${mistakes.length} settings are`} wrong:\n${mistakes.map((m) => `  ${m}`).join('\n')}`,
      { exitCode: EXIT_CONFIG },
    );
  return settings;
}

/** Whether a setting has a value in the environment, right or wrong. */
export function isGiven(name: SettingName, env: Readonly<Record<string, string | undefined>> = process.env): boolean {
  return (env[name]?.trim() ?? '') !== '';
}
