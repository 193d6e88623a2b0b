import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { EXIT_CONFIG, StartError } from '../errors.ts';
import { backupPlaces, type BackupPlaces } from './backup-places.ts';
import { contradictions, lackOf, type Service } from './contradictions.ts';
import * as parsers from './parsers.ts';

/**
 * Every setting of every service in one table. Services read their part of it. Meanings stand in docs/settings.md,
 * which a test compares with the table. No other file reads process.env, except what native code reads there
 * (thread-pool.ts, common/clickhouse/embedded/embedded.ts) or what a child process inherits
 * (common/kafka/local-broker/java.ts).
 */
export interface Setting<T> {
  readonly default: T;
  /** how documentation shows the default, if the value itself is not suitable */
  readonly shown?: string;
  readonly unit?: string;
  /** `address`: a URL, of which only user and password are secret */
  readonly secret?: true | 'address';
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
  KAFKA_BROKERS: optional({ shown: 'local broker', parse: parsers.brokers }),
  KAFKA_TOPICS: setting<parsers.Topics>({
    default: parsers.defaultTopics,
    shown: 'source name = topic name',
    parse: parsers.topics,
  }),
  KAFKA_RAW_AVRO_TOPICS: setting<string[]>({ default: [], shown: 'none', parse: parsers.names }),
  SCHEMA_REGISTRY_URL: optional({ secret: 'address', parse: parsers.url('http', 'https') }),
  AVRO_SCHEMAS_DIR: optional({ parse: parsers.folder }),
  KAFKA_TOPIC_PARTITIONS: setting({ default: 3, parse: parsers.integer(1, 1000) }),
  KAFKA_GROUP_ID: setting({ default: 'sluice', parse: parsers.text }),
  KAFKA_SSL: setting({ default: false, parse: parsers.yesOrNo }),
  KAFKA_SSL_CA: optional({ shown: "Node's own list", parse: parsers.certificateFile }),
  KAFKA_SSL_CERT: optional({ parse: parsers.certificateFile }),
  KAFKA_SSL_KEY: optional({ parse: parsers.privateKeyFile }),
  KAFKA_SASL_MECHANISM: optional({
    parse: (value) => parsers.oneOf('plain', 'scram-sha-256', 'scram-sha-512')(value.toLowerCase()),
  }),
  KAFKA_SASL_USERNAME: optional({ parse: parsers.text }),
  KAFKA_SASL_PASSWORD: optional({ secret: true, parse: parsers.text }),
  KAFKA_PORT: setting({ default: 9092, parse: parsers.integer(1, 65535) }),
  KAFKA_MAX_DECOMPRESSED_BYTES: setting({
    default: 32 * 1024 * 1024,
    unit: 'bytes',
    parse: parsers.integer(LARGEST_EVENT_BYTES, 1024 ** 3),
  }),
  BATCH_MAX_BYTES: setting({
    default: 25 * 1024 * 1024,
    unit: 'bytes',
    parse: parsers.integer(1024 * 1024, 256 * 1024 * 1024),
  }),
  PUSH_BUFFER_BYTES: setting({
    default: 128 * 1024 * 1024,
    unit: 'bytes',
    // half of it takes the largest request, whose pieces are network packets (EVENT_BYTES, PIECE_BYTES)
    parse: parsers.integer(96 * 1024 * 1024, 1024 ** 4),
  }),
  CLICKHOUSE_URL: optional({ shown: 'embedded engine', secret: 'address', parse: parsers.nodes }),
  CLICKHOUSE_CLUSTER: optional({ parse: parsers.text }),
  CLICKHOUSE_SANDBOX_URL: optional({ secret: 'address', parse: parsers.server }),
  MOVE_FROM_URL: optional({ shown: 'embedded engine of DATA_DIR', secret: 'address', parse: parsers.server }),
  CLICKHOUSE_SSL_CA: optional({ shown: "Node's own list", parse: parsers.certificateFile }),
  DATA_DIR: setting({ default: './data', parse: parsers.text }),
  BACKUP_PLACES: setting<BackupPlaces>({ default: {}, shown: 'none', secret: true, parse: backupPlaces }),
  CACHE_DIR: setting({
    default: resolve(process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'sluice'),
    shown: '~/.cache/sluice',
    parse: parsers.path,
  }),
  JAVA_HOME: optional({ shown: '`java` on the PATH', parse: parsers.path }),
  FSYNC: setting({ default: false, parse: parsers.yesOrNo }),
  HOST: setting({ default: '127.0.0.1', parse: parsers.host }),
  PORT: setting({ default: 4000, parse: parsers.integer(0, 65535) }),
  HTTPS_CERT: optional({ shown: 'plain HTTP', parse: parsers.certificateFile }),
  HTTPS_KEY: optional({ parse: parsers.privateKeyFile }),
  API_KEY: optional({ shown: 'created on the first start', secret: true, parse: parsers.headerText }),
  METRICS_PORT: optional({ shown: 'served on PORT', parse: parsers.integer(0, 65535) }),
  TRUST_PROXY: setting<parsers.TrustProxy>({ default: false, parse: parsers.trustProxy }),
  RATE_LIMIT_PER_KEY: setting({ default: 0, unit: 'requests a minute', parse: parsers.integer(0, 1_000_000) }),
  RATE_LIMIT_PER_ADDRESS: setting({ default: 0, unit: 'requests a minute', parse: parsers.integer(0, 1_000_000) }),
  ENDPOINTS_DIR: optional({ parse: parsers.folder }),
  QUERY_CONCURRENCY: setting({ default: 4, parse: parsers.integer(1, 1000) }),
  QUERY_QUEUE: setting({ default: 64, parse: parsers.integer(0, 100_000) }),
  QUERY_TIMEOUT_SECONDS: setting({ default: 20, unit: 'seconds', parse: parsers.integer(1, 55) }),
  QUERY_MAX_MEMORY_BYTES: setting({ default: 1024 ** 3, unit: 'bytes', parse: parsers.integer(1024 ** 2, 1024 ** 4) }),
  QUERY_MAX_ROWS_READ: setting({ default: 1_000_000_000, unit: 'rows', parse: parsers.integer(1, 10 ** 12) }),
  ANSWER_CACHE_BYTES: setting({ default: 64 * 1024 ** 2, unit: 'bytes', parse: parsers.integer(0, 1024 ** 4) }),
  REDIS_URL: optional({ secret: 'address', parse: parsers.redis }),
  REDIS_SECRET: optional({ shown: 'the first admin key', secret: true, parse: parsers.text }),
  RAW_RETENTION_DAYS: setting({ default: 90, unit: 'days', parse: parsers.integer(1, 3650) }),
  ROLLUP_1M_RETENTION_DAYS: setting({ default: 30, unit: 'days', parse: parsers.integer(8, 3650) }),
  ROLLUP_1H_RETENTION_DAYS: setting({ default: 400, unit: 'days', parse: parsers.integer(8, 3650) }),
  ROLLUP_BUILD_PERCENT: setting({ default: 50, unit: '%', parse: parsers.integer(1, 100) }),
  ROLLUP_AUDIT_DAYS: setting({ default: 2, unit: 'days', parse: parsers.integer(0, 3650) }),
  MAX_EVENT_BYTES: setting({
    default: 8 * 1024 * 1024,
    unit: 'bytes',
    parse: parsers.integer(1024, LARGEST_EVENT_BYTES),
  }),
  BAD_SHARE_PERCENT: setting({ default: 50, unit: '%', parse: parsers.integer(1, 100) }),
  BAD_SHARE_WINDOW: setting({ default: 10_000, unit: 'messages', parse: parsers.integer(10, 10_000_000) }),
  BAD_SHARE_PAUSE_SECONDS: setting({ default: 300, unit: 'seconds', parse: parsers.integer(1, 7 * 86_400) }),
  LOG_LEVEL: setting({ default: 'info', parse: parsers.oneOf('fatal', 'error', 'warn', 'info', 'debug', 'trace') }),
} as const;

export type SettingName = keyof typeof settingsTable;
export type Settings = { [K in SettingName]: (typeof settingsTable)[K] extends Setting<infer T> ? T : never };

/**
 * Reads the whole table from the environment. An empty or blank variable counts as absent. Throws one StartError (exit
 * code 78) that lists every mistake, without the values of secret settings, and what `service` cannot do with them.
 */
export function readSettings(
  env: Readonly<Record<string, string | undefined>> = process.env,
  service?: Service,
): Settings {
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
  mistakes.push(...contradictions(settings, wrong, service));
  const lack = service && lackOf(settings, wrong, service);
  if (mistakes.length > 0) {
    const head = `${mistakes.length === 1 ? 'a setting is' : `${mistakes.length} settings are`} wrong:`;
    throw new StartError([head, ...mistakes, ...(lack === undefined ? [] : [lack])].join('\n  '), {
      exitCode: EXIT_CONFIG,
    });
  }
  if (lack !== undefined) throw new StartError(lack, { exitCode: EXIT_CONFIG });
  return settings;
}
