import { closeSync, mkdirSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { execFileSync, spawn } from 'node:child_process';
import { lastingPort } from './ports.ts';
import { findLibrary, type Library, type ServerVersion } from './clickhouse-library.ts';
import { profileSettings, type Profile } from './clickhouse-profile.ts';
import { waitFor } from './wait-for.ts';

export type { Profile } from './clickhouse-profile.ts';
export type { ServerVersion } from './clickhouse-library.ts';

export interface ServerOptions {
  /** 25.8: a whole server; 26.7: the embedded engine's own HTTP interface. Default 25.8 */
  readonly version?: ServerVersion;
  /** what the server's profile sets for `user`; default plain */
  readonly profile?: Profile;
  /** settings of the profile beside those; `readonly` ones cannot be changed by a statement */
  readonly settings?: Readonly<
    Record<string, string | number | { readonly value: string | number; readonly readonly: true }>
  >;
  /** the server's files; survives stop and kill */
  readonly dataDir: string;
  readonly user?: string;
  readonly password?: string;
  /** XML in the configuration's root element: what makes it a node of a cluster, for instance */
  readonly config?: string;
  /** of its HTTP interface; default any free one */
  readonly port?: number;
  readonly tcpPort?: number;
  readonly interserverPort?: number;
  /** where other replicas find it; default 127.0.0.1 */
  readonly interserverHost?: string;
}

export interface TestServer {
  /** with user and password, without a database; the user may do everything, also make users */
  readonly url: string;
  readonly port: number;
  readonly version: ServerVersion;
  readonly pid: number;
  /** without a right to anything, with the password of the other */
  readonly nobodyUrl: string;
  /** Runs a statement past everything that is tested; the answer as text. */
  query(sql: string): Promise<string>;
  /** kill -9 */
  kill(): Promise<void>;
  /** SIGTERM; a server that does not end within some seconds is killed */
  stop(): Promise<void>;
}

/** the user without any right */
export const NOBODY = 'nobody';
/** the harness's own user, under no profile, with the password of the other */
const ADMIN = 'admin';
/** As in the configuration that ClickHouse ships: a user has no right that nobody granted. */
const ACCESS_CONTROL = `<access_control_improvements>
    <users_without_row_policies_can_read_rows>true</users_without_row_policies_can_read_rows>
    <on_cluster_queries_require_cluster_grant>true</on_cluster_queries_require_cluster_grant>
    <select_from_system_db_requires_grant>true</select_from_system_db_requires_grant>
    <select_from_information_schema_requires_grant>true</select_from_information_schema_requires_grant>
    <settings_constraints_replace_previous>true</settings_constraints_replace_previous>
    <table_engines_require_grant>true</table_engines_require_grant>
  </access_control_improvements>`;
const LAUNCHER = fileURLToPath(new URL('clickhouse-server.py', import.meta.url));
/** Behind the work of others a start takes a minute. */
const START_TIMEOUT_MS = 120_000;
/** A server finishes what runs before it ends; its data are in order after a kill too. */
const STOP_TIMEOUT_MS = 5_000;

/**
 * Starts a genuine ClickHouse server on ports of its own. It ends with this process at the latest. Throws an error that
 * says what is missing.
 */
export async function startServer({
  version = '25.8',
  profile = 'plain',
  settings = {},
  dataDir,
  user = 'sluice',
  password = '',
  config = '',
  port,
  tcpPort,
  interserverPort,
  interserverHost = '127.0.0.1',
}: ServerOptions): Promise<TestServer> {
  const library = await findLibrary(version);
  const home = resolve(dataDir, `server-${version}`);
  mkdirSync(home, { recursive: true, mode: 0o700 });
  const ports = {
    http: port ?? (await lastingPort()),
    tcp: tcpPort ?? (await lastingPort()),
    interserver: interserverPort ?? (await lastingPort()),
    interserverHost,
  };
  writeFileSync(
    join(home, 'users.xml'),
    usersXml({ ...profileSettings(profile, version), ...settings }, library, user, password),
  );
  writeFileSync(join(home, 'config.xml'), configXml(library, home, ports, config));
  const log = join(home, 'server.log');
  const output = openSync(log, 'a');
  const child = spawn(
    'python3',
    [LAUNCHER, library.path, library.entryPoint, ...serverArguments(library, home, ports)],
    // without a process that only watches it: `pid` is the server
    { cwd: home, stdio: ['ignore', output, output], env: { ...process.env, CLICKHOUSE_WATCHDOG_ENABLE: '0' } },
  );
  closeSync(output);
  let ended: string | undefined;
  const exited = new Promise<void>((done) => {
    child.once('error', (error) => {
      ended = error.message;
      done();
    });
    child.once('exit', (code, signal) => {
      ended = `exit code ${code ?? signal}`;
      done();
    });
  });
  const urlOf = (name: string): string =>
    `http://${encodeURIComponent(name)}${password === '' ? '' : `:${encodeURIComponent(password)}`}@127.0.0.1:${ports.http}`;
  const server: TestServer = {
    url: urlOf(user),
    nobodyUrl: urlOf(NOBODY),
    port: ports.http,
    version,
    pid: child.pid ?? 0,
    query: async (sql) => {
      const response = await fetch(`http://127.0.0.1:${ports.http}/?wait_end_of_query=1`, {
        method: 'POST',
        body: sql,
        headers: { 'x-clickhouse-user': ADMIN, 'x-clickhouse-key': password },
      });
      const text = await response.text();
      if (!response.ok) throw new Error(text.trim());
      return text.trimEnd();
    },
    kill: async () => {
      child.kill('SIGKILL');
      await exited;
    },
    stop: async () => {
      child.kill('SIGTERM');
      const late = setTimeout(() => child.kill('SIGKILL'), STOP_TIMEOUT_MS);
      await exited;
      clearTimeout(late);
    },
  };
  await waitFor(
    async () => {
      if (ended !== undefined) return true;
      return (await fetch(`http://127.0.0.1:${ports.http}/ping`)).ok;
    },
    START_TIMEOUT_MS,
    `ClickHouse ${version} answers; its log is ${log}`,
  ).catch(async (error: unknown) => {
    await server.kill();
    throw error;
  });
  if (ended !== undefined)
    throw new Error(`ClickHouse ${version} ended at its start (${ended}): ${readFileSync(log, 'utf8').slice(-2_000)}`);
  return server;
}

interface Ports {
  readonly http: number;
  readonly tcp: number;
  readonly interserver: number;
  readonly interserverHost: string;
}

function serverArguments(library: Library, home: string, ports: Ports): string[] {
  const config = `--config-file=${join(home, 'config.xml')}`;
  if (library.kind === 'server') return [config];
  // its last statement reads what nobody ever writes, and so keeps the process
  const pipe = join(home, 'never');
  try {
    execFileSync('mkfifo', [pipe], { stdio: 'ignore' });
  } catch {
    // it is there from the last start
  }
  return [
    config,
    `--path=${join(home, 'data')}`,
    `--http_port=${ports.http}`,
    `--tcp_port=${ports.tcp}`,
    `--query=SYSTEM START LISTEN HTTP; SELECT * FROM file('${pipe}', 'LineAsString') SETTINGS max_execution_time = 0 FORMAT Null`,
  ];
}

function configXml(library: Library, home: string, ports: Ports, more: string): string {
  const own =
    library.kind === 'local'
      ? ''
      : `
  <http_port>${ports.http}</http_port>
  <tcp_port>${ports.tcp}</tcp_port>
  <interserver_http_port>${ports.interserver}</interserver_http_port>
  <interserver_http_host>${ports.interserverHost}</interserver_http_host>
  <path>${home}/data/</path>
  <tmp_path>${home}/data/tmp/</tmp_path>
  <user_files_path>${home}/data/user_files/</user_files_path>
  <format_schema_path>${home}/data/format_schemas/</format_schema_path>
  <default_profile>default</default_profile>
  <default_database>default</default_database>`;
  return `<clickhouse>
  <logger><level>warning</level><console>1</console></logger>
  <listen_host>127.0.0.1</listen_host>
  <user_directories>
    <users_xml><path>${home}/users.xml</path></users_xml>
    <local_directory><path>${home}/access/</path></local_directory>
  </user_directories>
  <backups><allowed_path>/</allowed_path></backups>
  <mark_cache_size>67108864</mark_cache_size>
  <!-- by default every second: it reads all connections of the machine, 3 % of the CPU of .ci/run -->
  <asynchronous_metrics_update_period_s>60</asynchronous_metrics_update_period_s>
  <keep_alive_timeout>10</keep_alive_timeout>
  <shutdown_wait_unfinished>0</shutdown_wait_unfinished>
  ${ACCESS_CONTROL}${own}
${more}
</clickhouse>
`;
}

function usersXml(
  settings: NonNullable<ServerOptions['settings']>,
  library: Library,
  user: string,
  password: string,
): string {
  const entries = Object.entries(settings).map(([name, setting]) => ({
    name,
    ...(typeof setting === 'object' ? setting : { value: setting, readonly: false }),
  }));
  const account = (name: string, profile: string, more: string, secret: string = password): string => `
    <${name}>
      <password><![CDATA[${secret}]]></password>
      <networks><ip>::/0</ip></networks>
      <profile>${profile}</profile>
      <quota>default</quota>${more}
    </${name}>`;
  // the session that keeps clickhouse-local running is of the user default, without a password
  const everything =
    '\n      <access_management>1</access_management>\n      <named_collection_control>1</named_collection_control>';
  return `<clickhouse>
  <profiles>
    <default/>
    <ours>${entries
      .map(
        ({ name, value }) => `
      <${name}>${value}</${name}>`,
      )
      .join('')}
      <constraints>${entries
        .filter((e) => e.readonly)
        .map(({ name }) => `<${name}><readonly/></${name}>`)
        .join('')}</constraints>
    </ours>
  </profiles>
  <users>${[account(user, 'ours', everything), account(ADMIN, 'default', everything), ...(library.kind === 'local' ? [account('default', 'default', '', '')] : [])].join('')}${account(NOBODY, 'default', '\n      <grants><query>GRANT NONE ON *.*</query></grants>')}
  </users>
  <quotas><default/></quotas>
</clickhouse>
`;
}
