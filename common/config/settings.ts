import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';
import { isIP } from 'node:net';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { EXIT_CONFIG, StartError } from '../errors.ts';
import { backupPlaces, type BackupPlaces } from './backup-places.ts';
import { sources, type SourceName } from '../sources.ts';

/**
 * Every setting of every service in one table. Services read their part of it, and the README's table is made from it.
 * No other file reads process.env, except what native code reads there (thread-pool.ts, common/clickhouse/embedded.ts).
 * A parser gets trimmed, non-empty text and throws an Error whose message completes the sentence "NAME ...".
 */
interface Setting<T> {
  readonly default: T;
  /** how the README shows the default, if the value itself is not suitable */
  readonly shown?: string;
  readonly unit?: string;
  readonly secret?: true;
  readonly description: string;
  readonly parse: (text: string) => T;
}

const setting = <T>(s: Setting<T>): Setting<T> => s;
const optional = <T>(s: Omit<Setting<T>, 'default'>): Setting<T | undefined> =>
  setting<T | undefined>({ default: undefined, shown: 'none', ...s });

const text = (value: string): string => value;

function oneOf<const T extends string>(...values: T[]): (value: string) => T {
  return (value) => {
    const found = values.find((v) => v === value);
    if (found === undefined) throw new Error(`is ${JSON.stringify(value)}; use one of ${values.join(', ')}`);
    return found;
  };
}

function integer(min: number, max: number): (value: string) => number {
  return (value) => {
    const n = Number(value);
    if (!/^\d+$/.test(value) || n < min || n > max)
      throw new Error(`is ${JSON.stringify(value)}; use an integer from ${min} to ${max}`);
    return n;
  };
}

function yesOrNo(value: string): boolean {
  return oneOf('true', 'false')(value) === 'true';
}

function url(...protocols: string[]): (value: string) => string {
  return (value) => {
    let parsed: URL;
    try {
      parsed = new URL(value);
    } catch {
      throw new Error(`is not a URL; use for instance ${protocols[0]}://localhost:8123`);
    }
    for (const part of [parsed.username, parsed.password, parsed.pathname]) {
      try {
        decodeURIComponent(part);
      } catch (error) {
        throw new Error('has a % that begins no escape; in a password it is written %25', { cause: error });
      }
    }
    if (!protocols.includes(parsed.protocol.slice(0, -1)))
      throw new Error(`has the protocol ${parsed.protocol.slice(0, -1)}; use ${protocols.join(' or ')}`);
    return value;
  };
}

/** One server, or several nodes of a cluster with the same database. */
function nodes(value: string): string {
  const urls = value.split(',').map((node) => node.trim());
  for (const node of urls) url('http', 'https')(node);
  if (new Set(urls.map((node) => new URL(node).pathname)).size > 1)
    throw new Error('names several databases; the nodes of a cluster have one database in common');
  return urls.join(',');
}

function brokers(value: string): string[] {
  const list = names(value);
  for (const b of list) {
    if (b.startsWith('['))
      throw new Error(`has ${JSON.stringify(b)}; the Kafka client takes no IPv6 address, use a host name`);
    const port = Number(/^[^:\s/]+:(\d{1,5})$/.exec(b)?.[1]);
    if (!(port >= 1 && port <= 65535)) throw new Error(`has ${JSON.stringify(b)}; use host:port,host:port`);
  }
  if (list.length === 0) throw new Error('names no broker; use host:port,host:port');
  return list;
}

/** One topic per source. A topic belongs to one source. */
export type Topics = Record<SourceName, string>;

const defaultTopics = Object.fromEntries(sources.map((s) => [s.name, s.name])) as Topics;

function topics(value: string): Topics {
  const result: Topics = { ...defaultTopics };
  const named = new Set<SourceName>();
  for (const pair of names(value)) {
    const [name, topic, ...rest] = pair.split('=').map((p) => p.trim());
    const source = sources.find((s) => s.name === name);
    if (source === undefined || rest.length > 0)
      throw new Error(
        `has ${JSON.stringify(pair)}; use source=topic with a source of ${sources.map((s) => s.name).join(', ')}`,
      );
    if (topic === undefined || !/^[A-Za-z0-9._-]{1,249}$/.test(topic) || topic === '.' || topic === '..')
      throw new Error(`has ${JSON.stringify(pair)}; a topic name has 1 to 249 of A-Z a-z 0-9 . _ -`);
    if (named.has(source.name)) throw new Error(`names ${source.name} twice`);
    named.add(source.name);
    result[source.name] = topic;
  }
  const seen = new Map<string, string>();
  for (const [source, topic] of Object.entries(result)) {
    const other = seen.get(topic);
    if (other !== undefined)
      throw new Error(`gives the topic ${topic} to both ${other} and ${source}; a topic belongs to one source`);
    seen.set(topic, source);
  }
  return result;
}

function fileText(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new Error(`names a file that cannot be read (${(error as NodeJS.ErrnoException).code})`, { cause: error });
  }
}

/** Checks the file and returns its path. It is read again where it is used. */
function certificateFile(path: string): string {
  const text = fileText(path);
  try {
    void new X509Certificate(text);
  } catch (error) {
    throw new Error('names a file that has no certificate in PEM', { cause: error });
  }
  return path;
}

function privateKeyFile(path: string): string {
  const text = fileText(path);
  try {
    createPrivateKey(text);
  } catch (error) {
    throw new Error('names a file that has no private key in PEM without a passphrase', { cause: error });
  }
  return path;
}

function folder(path: string): string {
  if (statSync(path, { throwIfNoEntry: false })?.isDirectory() !== true)
    throw new Error(`is ${JSON.stringify(path)}, which is no folder`);
  return path;
}

/** A key that callers send in a header. Other characters would arrive changed, or not at all. */
function headerText(value: string): string {
  if (!/^[\x20-\x7e]+$/.test(value))
    throw new Error('has a character that is not of ASCII, which HTTP headers do not carry');
  return value;
}

/**
 * Whose X-Forwarded-For is trusted: nobody's, that of the given number of proxies, or that of proxies in these
 * networks.
 */
export type TrustProxy = false | number | readonly string[];

function trustProxy(value: string): TrustProxy {
  if (value === 'false' || value === '0') return false;
  if (value === 'true')
    throw new Error(
      'is "true", which would let every caller choose its own address; use how many proxies stand in front (1), or their networks (10.0.0.0/8,127.0.0.1)',
    );
  if (/^[1-9]\d?$/.test(value)) return Number(value);
  const networks = names(value);
  for (const network of networks) {
    const [address = '', bits, ...rest] = network.split('/');
    const version = isIP(address);
    const most = version === 4 ? 32 : 128;
    if (
      version === 0 ||
      rest.length > 0 ||
      (bits !== undefined && (!/^\d{1,3}$/.test(bits) || Number(bits) < 1 || Number(bits) > most))
    ) {
      throw new Error(
        `has ${JSON.stringify(network)}; use how many proxies stand in front (1 to 99), or their networks (10.0.0.0/8,127.0.0.1)`,
      );
    }
  }
  if (networks.length === 0)
    throw new Error(
      'names no network; use how many proxies stand in front (1), or their networks (10.0.0.0/8,127.0.0.1)',
    );
  return networks;
}

/** Whether only this machine can reach an address. */
function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127(\.\d{1,3}){3}$/.test(host);
}

/** A shorter key could be guessed. */
export const SHORTEST_API_KEY = 16;

const mechanisms = oneOf('plain', 'scram-sha-256', 'scram-sha-512');

function names(value: string): string[] {
  return value
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '');
}

/**
 * The upper limit of MAX_EVENT_BYTES, and the lower limit of a fetch: a truncated event is then still recognised as too
 * large.
 */
const LARGEST_EVENT_BYTES = 32 * 1024 * 1024;

export const settingsTable = {
  KAFKA_BROKERS: optional({ shown: 'local broker', description: 'Kafka, `host:port,host:port`', parse: brokers }),
  KAFKA_TOPICS: setting<Topics>({
    default: defaultTopics,
    shown: 'source name = topic name',
    description: 'topics with another name: `edge_logs=cloudflare.logs.prod,...`',
    parse: topics,
  }),
  KAFKA_RAW_AVRO_TOPICS: setting<string[]>({
    default: [],
    shown: 'none',
    description: "topics whose values are raw Avro datums of the source's own schema, `edge_logs,...`",
    parse: names,
  }),
  SCHEMA_REGISTRY_URL: optional({
    secret: true,
    description: "schema registry for messages in Confluent's wire format, `http://user:password@host:8081`",
    parse: url('http', 'https'),
  }),
  AVRO_SCHEMAS_DIR: optional({
    description: "folder with further writers' schemas, `*.avsc`, for messages in Avro's single-object encoding",
    parse: folder,
  }),
  KAFKA_TOPIC_PARTITIONS: setting({
    default: 3,
    description: 'number of partitions of topics that sluice creates; existing topics stay as they are',
    parse: integer(1, 1000),
  }),
  KAFKA_GROUP_ID: setting({ default: 'sluice', description: 'consumer group', parse: text }),
  KAFKA_SSL: setting({ default: false, description: 'true: use TLS to the brokers', parse: yesOrNo }),
  KAFKA_SSL_CA: optional({
    shown: "Node's own list",
    description: "PEM file with the authorities of the brokers' certificates",
    parse: certificateFile,
  }),
  KAFKA_SSL_CERT: optional({
    description: 'PEM file with the client certificate, for brokers that require one',
    parse: certificateFile,
  }),
  KAFKA_SSL_KEY: optional({ description: 'PEM file with the private key', parse: privateKeyFile }),
  KAFKA_SASL_MECHANISM: optional({
    description:
      'plain, scram-sha-256 or scram-sha-512; without KAFKA_SSL, plain sends the password readably over the network',
    parse: (value) => mechanisms(value.toLowerCase()),
  }),
  KAFKA_SASL_USERNAME: optional({ description: 'user for SASL', parse: text }),
  KAFKA_SASL_PASSWORD: optional({ secret: true, description: 'password for SASL', parse: text }),
  KAFKA_PORT: setting({
    default: 9092,
    description: 'port of the local broker on 127.0.0.1',
    parse: integer(1, 65535),
  }),
  KAFKA_MAX_DECOMPRESSED_BYTES: setting({
    default: 32 * 1024 * 1024,
    unit: 'bytes',
    description:
      'largest decompressed size of one fetch; the rest is fetched again. Of a larger event only the beginning is kept, as a dead letter (`too_large`)',
    parse: integer(LARGEST_EVENT_BYTES, 1024 ** 3),
  }),
  BATCH_MAX_BYTES: setting({
    default: 32 * 1024 * 1024,
    unit: 'bytes',
    description:
      'largest insert of a partition with a backlog. All partitions together hold about twice as much, or four times when many begin at once. Larger inserts cost less CPU per event and more memory (bench/README.md)',
    parse: integer(1024 * 1024, 256 * 1024 * 1024),
  }),
  PUSH_BUFFER_BYTES: setting({
    default: 128 * 1024 * 1024,
    unit: 'bytes',
    description:
      'memory of HTTP push for bodies and events that Kafka has not acknowledged; one key gets at most half. More is refused with 429',
    parse: integer(64 * 1024 * 1024, 1024 ** 4),
  }),
  CLICKHOUSE_URL: optional({
    shown: 'embedded engine',
    secret: true,
    description:
      'ClickHouse server, `http://user:password@host:8123/database`; with CLICKHOUSE_CLUSTER every node of it, separated by commas',
    parse: nodes,
  }),
  CLICKHOUSE_CLUSTER: setting<string | undefined>({
    default: undefined,
    shown: 'none',
    description:
      "name of the cluster in the servers' `remote_servers`: the tables are replicated on the nodes of each of its shards ([scale.md](scale.md))",
    parse: text,
  }),
  CLICKHOUSE_SANDBOX_URL: optional({
    secret: true,
    description:
      'the same server with a user without any rights; required with CLICKHOUSE_URL for `sandboxed` endpoints',
    parse: url('http', 'https'),
  }),
  CLICKHOUSE_SSL_CA: optional({
    shown: "Node's own list",
    description: "PEM file with the authorities of the server's certificate, for an `https` CLICKHOUSE_URL",
    parse: certificateFile,
  }),
  DATA_DIR: setting({
    default: './data',
    description: 'folder of the embedded ClickHouse, the local broker and the first key',
    parse: text,
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
    default: join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'sluice'),
    shown: '~/.cache/sluice',
    description: "folder of the local broker's jars (54 MB, only without Docker), shared by all data folders",
    parse: text,
  }),
  JAVA_HOME: optional({
    shown: '`java` on the PATH',
    description: 'Java 17 or newer for the local broker',
    parse: text,
  }),
  FSYNC: setting({
    default: false,
    description:
      'true: inserts, merges and the local broker wait for the disk, so power loss loses nothing. `npm start` and `npm run rollup` set it on all tables. It costs about 20 ms a batch on a virtual disk',
    parse: yesOrNo,
  }),
  HOST: setting({ default: '127.0.0.1', description: 'address the HTTP service listens on', parse: text }),
  PORT: setting({
    default: 4000,
    description: 'port the HTTP service listens on; 0 picks a free one',
    parse: integer(0, 65535),
  }),
  HTTPS_CERT: optional({
    shown: 'plain HTTP',
    description:
      "PEM file with the HTTP service's certificate and its intermediates; if set, the service speaks TLS only",
    parse: certificateFile,
  }),
  HTTPS_KEY: optional({ description: 'PEM file with the private key', parse: privateKeyFile }),
  API_KEY: optional({
    shown: 'created on the first start',
    secret: true,
    description: 'first admin key, valid only while it is set; at least 16 characters, unless HOST is loopback',
    parse: headerText,
  }),
  METRICS_PORT: optional({
    shown: 'served on PORT',
    description: 'separate port for /metrics, /livez and /readyz, on HOST; ingest and rollup serve them only there',
    parse: integer(0, 65535),
  }),
  TRUST_PROXY: setting<TrustProxy>({
    default: false,
    description:
      "proxies whose X-Forwarded-For is trusted for the caller's address: their number (`1`), or their networks (`10.0.0.0/8,127.0.0.1`)",
    parse: trustProxy,
  }),
  RATE_LIMIT_PER_KEY: setting({
    default: 0,
    unit: 'requests a minute',
    description: 'limit per key and process; 0 means none',
    parse: integer(0, 1_000_000),
  }),
  RATE_LIMIT_PER_ADDRESS: setting({
    default: 0,
    unit: 'requests a minute',
    description: 'limit per address and process; 0 means none',
    parse: integer(0, 1_000_000),
  }),
  ENDPOINTS_DIR: optional({
    description: 'folder with further endpoints, `<name>.sql` and `<name>.yaml` each',
    parse: folder,
  }),
  QUERY_CONCURRENCY: setting({
    default: 4,
    description: 'concurrent queries; requeries take at most half',
    parse: integer(1, 1000),
  }),
  QUERY_QUEUE: setting({
    default: 64,
    description: 'queries that may wait for a slot, for 2 s at most; more are refused with 503',
    parse: integer(0, 100_000),
  }),
  QUERY_TIMEOUT_SECONDS: setting({
    default: 20,
    unit: 'seconds',
    description: 'a longer query is cancelled and answered with 504',
    parse: integer(1, 55),
  }),
  QUERY_MAX_MEMORY_BYTES: setting({
    default: 1024 ** 3,
    unit: 'bytes',
    description: 'memory limit of one query',
    parse: integer(1024 ** 2, 1024 ** 4),
  }),
  QUERY_MAX_ROWS_READ: setting({
    default: 1_000_000_000,
    unit: 'rows',
    description: 'limit of rows that one query may read',
    parse: integer(1, 10 ** 12),
  }),
  ANSWER_CACHE_BYTES: setting({
    default: 64 * 1024 ** 2,
    unit: 'bytes',
    description: 'memory for cached answers',
    parse: integer(0, 1024 ** 4),
  }),
  REDIS_URL: optional({
    secret: true,
    description: 'Redis in which several query services share answers, `redis://host:6379/0`',
    parse: url('redis', 'rediss'),
  }),
  REDIS_SECRET: optional({
    shown: 'the first admin key',
    secret: true,
    description:
      'secret that signs answers in Redis; services that share answers need the same one, or the same API_KEY',
    parse: text,
  }),
  RAW_RETENTION_DAYS: setting({
    default: 90,
    unit: 'days',
    description: 'how long raw events are kept; older events become dead letters',
    parse: integer(1, 3650),
  }),
  ROLLUP_1M_RETENTION_DAYS: setting({
    default: 30,
    unit: 'days',
    description: 'how long rollups per minute are kept; endpoints reach 7 days back',
    parse: integer(8, 3650),
  }),
  ROLLUP_1H_RETENTION_DAYS: setting({
    default: 400,
    unit: 'days',
    description: 'how long rollups per hour are kept',
    parse: integer(8, 3650),
  }),
  ROLLUP_BUILD_PERCENT: setting({
    default: 50,
    unit: '%',
    description: 'share of time spent building history into a rollup, on one thread',
    parse: integer(1, 100),
  }),
  ROLLUP_AUDIT_DAYS: setting({
    default: 3,
    unit: 'days',
    description:
      'days of rollups that are compared with the raw tables every night; closed minutes are compared all day',
    parse: integer(0, 3650),
  }),
  MAX_EVENT_BYTES: setting({
    default: 8 * 1024 * 1024,
    unit: 'bytes',
    description: 'larger events, uncompressed, become dead letters',
    parse: integer(1024, LARGEST_EVENT_BYTES),
  }),
  BAD_SHARE_PERCENT: setting({
    default: 50,
    unit: '%',
    description:
      'ingest pauses a partition if more than this share of its last messages are dead letters; 100 means never',
    parse: integer(1, 100),
  }),
  BAD_SHARE_WINDOW: setting({
    default: 10_000,
    unit: 'messages',
    description:
      'number of last messages that count for the share; if a partition never had as many, the rest counts as good',
    parse: integer(10, 10_000_000),
  }),
  BAD_SHARE_PAUSE_SECONDS: setting({
    default: 300,
    unit: 'seconds',
    description: 'length of the pause; `npm run ingest -- resume` ends it earlier',
    parse: integer(1, 7 * 86_400),
  }),
  LOG_LEVEL: setting({
    default: 'info',
    description: 'fatal, error, warn, info, debug or trace',
    parse: oneOf('fatal', 'error', 'warn', 'info', 'debug', 'trace'),
  }),
} as const;

export type SettingName = keyof typeof settingsTable;
export type Settings = { [K in SettingName]: (typeof settingsTable)[K] extends Setting<infer T> ? T : never };

/** Returns every setting for documentation: name, default, unit, meaning. */
export function settingsRows(): {
  readonly name: string;
  readonly shown: string;
  readonly unit: string;
  readonly description: string;
}[] {
  return (Object.entries(settingsTable) as [string, Setting<unknown>][]).map(([name, s]) => ({
    name,
    shown: s.shown ?? `\`${String(s.default)}\``,
    unit: s.unit ?? '',
    description: s.description,
  }));
}

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

/**
 * Returns every setting as it was understood, for people. Secrets and credentials in addresses become `***`. Settings
 * that were not given are marked.
 */
export function describeSettings(
  settings: Settings,
  env: Readonly<Record<string, string | undefined>> = process.env,
): string {
  const rows = (Object.entries(settingsTable) as [SettingName, Setting<unknown>][]).map(([name, s]) => {
    const value = settings[name];
    const shown =
      value === undefined || (Array.isArray(value) && value.length === 0)
        ? (s.shown ?? 'none')
        : s.secret === true
          ? redacted(textOf(value))
          : textOf(value);
    return `${name} = ${shown}${s.unit === undefined ? '' : ` ${s.unit}`}${isGiven(name, env) ? '' : ' (default)'}`;
  });
  return `${rows.join('\n')}\n`;
}

function textOf(value: unknown): string {
  if (Array.isArray(value)) return value.join(',');
  return typeof value === 'object' && value !== null
    ? Object.entries(value)
        .map(([name, of]) => `${name}=${String(of)}`)
        .join(',')
    : String(value);
}

/** Returns an address, or several separated by commas, without their secrets. */
function redacted(value: string): string {
  const [one = '', ...more] = value.split(/,(?=https?:)/);
  if (more.length > 0) return [one, ...more].map(redacted).join(',');
  if (!URL.canParse(value)) return '***';
  const { protocol, username, password, host, pathname } = new URL(value);
  return `${protocol}//${username === '' && password === '' ? '' : '***@'}${host}${pathname === '/' ? '' : pathname}`;
}

/**
 * Returns what is wrong between settings that are valid by themselves. It skips those in `wrong`, which have their
 * defaults here.
 */
function contradictions(settings: Settings, wrong: ReadonlySet<SettingName>): string[] {
  const mistakes: string[] = [];
  const right = (...of: SettingName[]): boolean => !of.some((name) => wrong.has(name));
  const known = Object.values(settings.KAFKA_TOPICS);
  const unknown = settings.KAFKA_RAW_AVRO_TOPICS.filter((topic) => !known.includes(topic));
  if (unknown.length > 0 && right('KAFKA_TOPICS'))
    mistakes.push(
      `KAFKA_RAW_AVRO_TOPICS has ${unknown.map((topic) => JSON.stringify(topic)).join(', ')}; use topics of KAFKA_TOPICS: ${known.join(', ')}`,
    );

  const given = (...of: SettingName[]): SettingName[] =>
    of.filter((name) => settings[name] !== undefined && settings[name] !== false);
  const together = (...of: SettingName[]): void => {
    const some = given(...of);
    if (some.length > 0 && some.length < of.length && right(...of))
      mistakes.push(
        `${some.join(' and ')} ${some.length > 1 ? 'need' : 'needs'} ${of.filter((name) => !some.includes(name)).join(' and ')} too`,
      );
  };
  together('KAFKA_SASL_MECHANISM', 'KAFKA_SASL_USERNAME', 'KAFKA_SASL_PASSWORD');
  together('KAFKA_SSL_CERT', 'KAFKA_SSL_KEY');
  together('HTTPS_CERT', 'HTTPS_KEY');
  for (const name of given('KAFKA_SSL_CA', 'KAFKA_SSL_CERT'))
    if (!settings.KAFKA_SSL && right('KAFKA_SSL')) mistakes.push(`${name} is given, but KAFKA_SSL is not true`);
  if (settings.KAFKA_BROKERS === undefined && right('KAFKA_BROKERS'))
    for (const name of given('KAFKA_SSL', 'KAFKA_SASL_MECHANISM'))
      mistakes.push(`${name} needs KAFKA_BROKERS: the local broker has neither TLS nor users`);
  if (right('CLICKHOUSE_URL')) {
    if (settings.CLICKHOUSE_CLUSTER !== undefined && settings.CLICKHOUSE_URL === undefined)
      mistakes.push('CLICKHOUSE_CLUSTER needs CLICKHOUSE_URL: the embedded engine is no node of a cluster');
    if (settings.CLICKHOUSE_CLUSTER === undefined && settings.CLICKHOUSE_URL?.includes(',') === true)
      mistakes.push('CLICKHOUSE_URL names several servers, but CLICKHOUSE_CLUSTER is not given');
  }
  if (
    settings.CLICKHOUSE_SSL_CA !== undefined &&
    settings.CLICKHOUSE_URL?.startsWith('https:') !== true &&
    right('CLICKHOUSE_URL')
  )
    mistakes.push('CLICKHOUSE_SSL_CA is given, but CLICKHOUSE_URL is no https address');
  if (
    settings.API_KEY !== undefined &&
    settings.API_KEY.length < SHORTEST_API_KEY &&
    !isLoopback(settings.HOST) &&
    right('API_KEY', 'HOST')
  ) {
    mistakes.push(
      `API_KEY has fewer than ${SHORTEST_API_KEY} characters, and HOST lets others than this machine in; use a longer key`,
    );
  }
  for (const [cert, key] of [
    ['KAFKA_SSL_CERT', 'KAFKA_SSL_KEY'],
    ['HTTPS_CERT', 'HTTPS_KEY'],
  ] as const) {
    const [certificate, privateKey] = [settings[cert], settings[key]];
    if (
      certificate !== undefined &&
      privateKey !== undefined &&
      !new X509Certificate(fileText(certificate)).checkPrivateKey(createPrivateKey(fileText(privateKey)))
    )
      mistakes.push(`${key} is not the private key of ${cert}`);
  }
  return mistakes;
}
