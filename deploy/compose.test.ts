import { existsSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { readSettings, settingsTable, type SettingName } from '../common/config/settings.ts';
import { KAFKA_VERSION, brokerSettings } from '../common/kafka/local-broker/server-properties.ts';
import { sources } from '../common/sources.ts';

// What can be said of docker-compose.yml, Dockerfile and .dockerignore from their text alone.
// test/integration/operate/compose.test.ts: what Docker's own client says. test/image: what a build of the Dockerfile
// gives.

const ROOT = new URL('../', import.meta.url);
const read = (name: string): string => readFileSync(new URL(name, ROOT), 'utf8');

interface Service {
  readonly image: string;
  readonly build?: string;
  readonly command?: readonly string[];
  readonly environment?: Readonly<Record<string, string | number>>;
  readonly depends_on?: Readonly<Record<string, { readonly condition: string }>>;
  readonly ports?: readonly string[];
  readonly volumes?: readonly (string | { readonly type: string; readonly target: string })[];
  readonly tmpfs?: readonly string[];
  readonly healthcheck?: { readonly test: readonly string[] };
  readonly read_only?: boolean;
  readonly cap_drop?: readonly string[];
  readonly security_opt?: readonly string[];
  readonly restart?: string;
  readonly stop_grace_period?: string;
  readonly mem_limit?: string;
  readonly cpus?: number | string;
  readonly pids_limit?: number;
}

const compose = parse(read('docker-compose.yml'), { merge: true }) as {
  readonly services: Readonly<Record<string, Service>>;
  readonly volumes: Readonly<Record<string, unknown>>;
};
const services = Object.entries(compose.services);
const own = services.filter(([, s]) => s.build !== undefined);

/** `FROM image`, `COPY a b`: instructions in order, continued lines joined. */
const dockerfile = read('Dockerfile')
  .replaceAll('\\\n', ' ')
  .split('\n')
  .filter((line) => line.trim() !== '' && !line.startsWith('#'))
  .map((line) => {
    const [instruction, rest] = line.split(/\s+(.*)/s);
    return { instruction: instruction!, rest: rest!.trim() };
  });
const of = (instruction: string): string[] =>
  dockerfile.filter((i) => i.instruction === instruction).map((i) => i.rest);
/** All but what Node and glibc read. */
const {
  NODE_ENV: _mode,
  MALLOC_MMAP_THRESHOLD_: mmapThreshold,
  ...imageEnv
} = Object.fromEntries(
  of('ENV').flatMap((line) => line.split(/\s+/).map((pair) => pair.split('=') as [string, string])),
);

/** As compose fills them in where the environment names nothing. */
const filledIn = (value: string | number): string => String(value).replace(/\$\{\w+:-([^}]*)\}/g, '$1');

describe('docker-compose.yml', () => {
  test('has Kafka, its topics, ClickHouse and the three services', () => {
    expect(services.map(([name]) => name).sort()).toEqual([
      'clickhouse',
      'create-topics',
      'ingest',
      'kafka',
      'query',
      'rollup',
    ]);
    expect(Object.fromEntries(own.map(([name, s]) => [name, s.command]))).toEqual(
      Object.fromEntries(['ingest', 'query', 'rollup'].map((name) => [name, [`services/${name}/main.ts`]])),
    );
  });

  test('pins every image that it does not build; Kafka is the one that everything is tested with, ClickHouse is new enough', () => {
    for (const [name, { image, build }] of services)
      if (build === undefined) expect(image, name).toMatch(/^[a-z/-]+:\d+\.\d+(\.\d+)+$/);
    expect(compose.services['kafka']!.image).toBe(`apache/kafka:${KAFKA_VERSION}`);
    expect(compose.services['create-topics']!.image).toBe(compose.services['kafka']!.image);
    const [major, minor] = compose.services['clickhouse']!.image.split(':')[1]!.split('.').map(Number);
    expect(major! * 100 + minor!).toBeGreaterThanOrEqual(2508);
    // long-term releases come in March and August, and get security fixes for a year
    expect([3, 8]).toContain(minor);
  });

  test.each(own)('%s: every variable is a setting, and the settings are right by the parser itself', (_, service) => {
    const given = { ...imageEnv, ...service.environment };
    for (const name of Object.keys(given)) expect(Object.keys(settingsTable)).toContain(name);
    const settings = readSettings(
      Object.fromEntries(Object.entries(given).map(([name, value]) => [name, filledIn(value)])),
    );
    expect(settings.HOST).toBe('0.0.0.0');
    const url = new URL(settings.CLICKHOUSE_URL!);
    const clickhouse = compose.services['clickhouse']!.environment!;
    expect([url.hostname, url.port, url.username, url.password, url.pathname]).toEqual([
      'clickhouse',
      '8123',
      clickhouse['CLICKHOUSE_USER'],
      filledIn(clickhouse['CLICKHOUSE_PASSWORD']!),
      `/${clickhouse['CLICKHOUSE_DB']}`,
    ]);
  });

  test('ingest reaches the listener that Kafka advertises inside; producers the one that is published', () => {
    const kafka = compose.services['kafka']!;
    const advertised = String(kafka.environment!['KAFKA_ADVERTISED_LISTENERS'])
      .split(',')
      .map((l) => l.split('://') as [string, string]);
    expect(advertised).toContainEqual(['INTERNAL', compose.services['ingest']!.environment!['KAFKA_BROKERS']]);
    expect(kafka.ports).toEqual(
      advertised
        .filter(([name]) => name === 'HOST')
        .map(([, address]) => `127.0.0.1:${address.split(':')[1]}:${address.split(':')[1]}`),
    );
    for (const [name] of advertised) expect(kafka.environment!['KAFKA_LISTENERS']).toContain(`${name}://:`);
    expect(kafka.environment!['KAFKA_MESSAGE_MAX_BYTES']).toBe(brokerSettings['message.max.bytes']);
  });

  test('all nine topics are made, with as many partitions as sluice makes itself', () => {
    const script = compose.services['create-topics']!.command!.join(' ');
    expect(/for topic in ([^;]*);/.exec(script)![1]!.trim().split(/\s+/).sort()).toEqual(
      sources.map((s) => s.name).sort(),
    );
    expect(script).toContain(`--partitions ${settingsTable.KAFKA_TOPIC_PARTITIONS.default} `);
  });

  test('what listens is published on this machine only; what is stored stands in a volume that is declared', () => {
    for (const [name, { ports = [], volumes = [] }] of services) {
      for (const port of ports) expect(port, name).toMatch(/^127\.0\.0\.1:\d+:\d+$/);
      for (const volume of volumes) {
        if (typeof volume !== 'string') continue;
        const [from] = volume.split(':');
        if (from!.startsWith('./')) expect(existsSync(new URL(from!, ROOT)), volume).toBe(true);
        else expect(Object.keys(compose.volumes), name).toContain(from);
      }
    }
    expect(compose.services['query']!.ports).toEqual([
      `127.0.0.1:${compose.services['query']!.environment!['PORT']}:4000`,
    ]);
    expect(compose.services['query']!.volumes).toEqual([`query-data:${imageEnv['DATA_DIR']}`]);
  });

  test('everything that goes on running has a health check, and what waits, waits for a condition that can come true', () => {
    for (const [name, service] of services) {
      if (name !== 'create-topics') expect(service.healthcheck?.test[0], name).toBeDefined();
      if (service.build !== undefined) expect(service.healthcheck!.test.at(-1), name).toContain('/readyz');
      for (const [other, { condition }] of Object.entries(service.depends_on ?? {})) {
        expect(Object.keys(compose.services)).toContain(other);
        expect(condition).toBe(other === 'create-topics' ? 'service_completed_successfully' : 'service_healthy');
      }
    }
  });

  test('every container is limited, as two cores allow; the three services have no rights and a root that is read-only', () => {
    for (const [name, s] of services) {
      expect(filledIn(s.mem_limit!), name).toMatch(/^\d+[mg]$/);
      expect(Number(filledIn(s.cpus!)), name).toBeGreaterThan(0);
      // Docker refuses a container more than the machine has
      expect(Number(filledIn(s.cpus!)), name).toBeLessThanOrEqual(2);
      if (s.restart !== 'on-failure')
        for (const limit of [s.cpus, s.mem_limit]) expect(limit, name).toMatch(/^\$\{[A-Z]+_(CPUS|MEMORY):-\w+\}$/);
      expect(s.pids_limit, name).toBeGreaterThan(0);
      expect(s.security_opt, name).toEqual(['no-new-privileges:true']);
      expect([s.read_only, s.cap_drop], name).toEqual([true, ['ALL']]);
    }
    for (const [name, s] of own) {
      expect(s.restart, name).toBe('unless-stopped');
      // longer than a service takes to stop in order
      expect(Number.parseInt(s.stop_grace_period!, 10)).toBeGreaterThan(10);
    }
  });

  test('no container leaves an anonymous volume behind', () => {
    // what apache/kafka and clickhouse-server declare; the Dockerfile declares none
    const declared: Readonly<Record<string, readonly string[]>> = {
      'apache/kafka': ['/etc/kafka/secrets', '/var/lib/kafka/data', '/mnt/shared/config'],
      'clickhouse/clickhouse-server': ['/var/lib/clickhouse'],
      sluice: of('VOLUME'),
    };
    for (const [name, { image, volumes = [] }] of services) {
      const mounted = volumes.map((v) => (typeof v === 'string' ? v.split(':')[1] : v.target));
      for (const path of declared[image.split(':')[0]!]!) expect(mounted, `${name}: ${path}`).toContain(path);
    }
    expect(of('VOLUME')).toEqual([]);
  });
});

describe('Dockerfile', () => {
  test('is based on one pinned image with the Node that the packages ask for', () => {
    const { dependencies } = JSON.parse(read('package.json')) as { dependencies: Record<string, string> };
    expect(new Set(of('FROM').map((line) => line.split(' ')[0]))).toEqual(
      new Set([`node:${dependencies['node']}-bookworm-slim`]),
    );
  });

  test('runs as a user without rights, without a shell between it and its signals', () => {
    expect(dockerfile.findLastIndex((i) => i.instruction === 'USER')).toBeGreaterThan(
      dockerfile.findLastIndex((i) => i.instruction === 'RUN'),
    );
    expect(of('USER')).toEqual(['node']);
    for (const line of [...of('ENTRYPOINT'), ...of('CMD')]) expect(JSON.parse(line)).toBeInstanceOf(Array);
    expect(of('STOPSIGNAL')).toEqual(['SIGTERM']);
  });

  test('copies what is there and let through, and nothing that only tests or demonstrations need', () => {
    const lines = read('.dockerignore').split('\n');
    const allowed = lines.filter((line) => line.startsWith('!')).map((line) => line.slice(1));
    const copied = of('COPY')
      .filter((line) => !line.startsWith('--from'))
      .flatMap((line) => line.split(' ').slice(0, -1));
    for (const path of copied) {
      expect(existsSync(new URL(path, ROOT)), path).toBe(true);
      expect(allowed).toContain(path);
    }
    expect([...new Set(copied)].toSorted()).toEqual([
      '.npmrc',
      'LICENSE',
      'cli.ts',
      'clickhouse',
      'common',
      'docs/runbook.md',
      'package-lock.json',
      'package.json',
      'schemas',
      'services',
    ]);
    for (const pattern of ['**/*.test.ts', '**/simulation', 'services/all-in-one']) expect(lines).toContain(pattern);
  });

  test('its settings are settings', () => {
    for (const name of Object.keys(imageEnv)) expect(Object.keys(settingsTable) as SettingName[]).toContain(name);
    expect(of('EXPOSE')).toEqual([`${settingsTable.PORT.default} ${imageEnv['METRICS_PORT']}`]);
    expect(
      of('RUN').some((line) =>
        line.includes(`mkdir ${imageEnv['DATA_DIR']} && chown node:node ${imageEnv['DATA_DIR']}`),
      ),
    ).toBe(true);
    // memory of batches returns to the system, as in `npm run ingest`
    const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> };
    expect(scripts['ingest']).toContain(`MALLOC_MMAP_THRESHOLD_=${mmapThreshold} `);
    // an orchestrator that restarts what is not healthy must not do so while ClickHouse is away
    expect(of('HEALTHCHECK')[0]).toContain(`process.env.METRICS_PORT + '/livez'`);
  });
});
