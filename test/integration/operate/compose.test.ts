import { execFile, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { kafkaBrokers } from '../../harness/kafka.ts';
import { composeClient } from '../../harness/tools.ts';

// Guarantee: Docker's own compose client reads docker-compose.yml, starts the containers in an order in which each
// finds what it needs, and the check that they wait for tells a broker that answers from everything else.

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const run = promisify(execFile);

interface Resolved {
  readonly services: Readonly<
    Record<
      string,
      {
        readonly cpus: number;
        readonly mem_limit: string;
        readonly depends_on?: Readonly<Record<string, { readonly condition: string; readonly required: boolean }>>;
        readonly healthcheck?: { readonly test: readonly string[] };
      }
    >
  >;
}

let client: string;
beforeAll(async () => {
  client = await composeClient();
}, 6 * 60_000);

/** Only these variables reach the client: what stands in the environment of the tests changes nothing. */
async function compose(
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<{ stdout: string; stderr: string }> {
  return await run(client, ['--ansi', 'never', '--env-file', '/dev/null', ...args], {
    cwd: ROOT,
    env: { PATH: process.env['PATH'], HOME: tmpdir(), ...env },
  });
}

async function resolved(env: Readonly<Record<string, string>> = {}): Promise<Resolved> {
  return JSON.parse((await compose(['config', '--format', 'json'], env)).stdout) as Resolved;
}

describe('docker compose config', () => {
  test('accepts the file, and a machine of two cores can run every container of it', async () => {
    const { services } = await resolved();
    expect(Object.keys(services).toSorted()).toEqual([
      'clickhouse',
      'create-topics',
      'ingest',
      'kafka',
      'query',
      'rollup',
    ]);
    for (const [name, { cpus }] of Object.entries(services)) expect(cpus > 0 && cpus <= 2, name).toBe(true);
  });

  test('with the override: two shards of two replicas with data of their own behind one Keeper, and services that know all', async () => {
    const files = ['docker-compose.yml', 'deploy/docker-compose.cluster.yml'];
    const { stdout } = await compose([...files.flatMap((name) => ['-f', name]), 'config', '--format', 'json']);
    type Container = {
      readonly environment: Readonly<Record<string, string>>;
      readonly volumes?: readonly { readonly source: string; readonly target: string }[];
      readonly depends_on?: object;
    };
    const { services } = JSON.parse(stdout) as { readonly services: Readonly<Record<string, Container>> };
    const nodes = ['clickhouse', 'clickhouse-2', 'clickhouse-3', 'clickhouse-4'];
    const config = readFileSync(join(ROOT, 'deploy/clickhouse/cluster.xml'), 'utf8');
    const shards = config.split('<shard>').slice(1);
    expect(shards).toHaveLength(2);
    for (const [i, name] of nodes.entries()) {
      const shard = Math.floor(i / 2);
      expect(services[name]).toMatchObject({
        environment: { SHARD: String(shard + 1), REPLICA: name, CLUSTER_SECRET: 'sluice' },
        depends_on: { keeper: {} },
      });
      const mounted = services[name]!.volumes!.map((v) => v.source);
      for (const file of ['cluster.xml', 'cluster.sql', 'sluice.xml'])
        expect(mounted).toContain(join(ROOT, 'deploy/clickhouse', file));
      expect(shards[shard]).toContain(`<host>${name}</host>`);
    }
    const data = nodes.map((name) => services[name]!.volumes!.find((v) => v.target === '/var/lib/clickhouse')!.source);
    expect(data).toEqual(['clickhouse-data', 'clickhouse-2-data', 'clickhouse-3-data', 'clickhouse-4-data']);
    for (const name of ['rollup', 'ingest', 'query']) {
      const { CLICKHOUSE_URL = '', CLICKHOUSE_CLUSTER } = services[name]!.environment;
      expect(CLICKHOUSE_URL.split(',').map((url) => new URL(url).hostname)).toEqual(nodes);
      expect(config).toContain(`<${CLICKHOUSE_CLUSTER}>`);
    }
  });

  test('takes every limit from a variable named after its container', async () => {
    const names = ['kafka', 'clickhouse', 'rollup', 'ingest', 'query'];
    const { services } = await resolved(
      Object.fromEntries(
        names.flatMap((name, i) => [
          [`${name.toUpperCase()}_CPUS`, `0.${i + 1}`],
          [`${name.toUpperCase()}_MEMORY`, `${700 + i}m`],
        ]),
      ),
    );
    expect(names.map((name) => [services[name]!.cpus, Number(services[name]!.mem_limit)])).toEqual(
      names.map((_, i) => [(i + 1) / 10, (700 + i) * 1024 * 1024]),
    );
  });
});

/**
 * Stands in for a daemon on a machine where nothing exists yet but the images: a dry run changes nothing and asks no
 * more than this.
 */
async function emptyDaemon(socket: string): Promise<{ stop: () => void }> {
  const answerTo = (path: string): unknown => {
    if (/\/images\/.*\/json$/.test(path))
      return { Id: `sha256:${'0'.repeat(64)}`, Os: 'linux', Architecture: 'amd64', Config: {} };
    if (path.endsWith('/containers/json') || path.endsWith('/networks')) return [];
    return path.endsWith('/volumes') ? { Volumes: [] } : undefined;
  };
  const server = createHttpServer((request, response) => {
    const { pathname } = new URL(request.url ?? '/', 'http://daemon');
    const answer = pathname.endsWith('/_ping') ? 'OK' : answerTo(pathname);
    response.writeHead(answer === undefined ? 404 : 200, {
      'content-type': 'application/json',
      'api-version': '1.48',
      ostype: 'linux',
    });
    response.end(JSON.stringify(answer ?? { message: 'no such object' }));
  });
  await new Promise<void>((resolve) => {
    server.listen(socket, resolve);
  });
  return {
    stop: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

describe('docker compose up --dry-run', () => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-compose-'));
  const socket = join(folder, 'daemon.sock');
  let daemon: { stop: () => void };
  beforeAll(async () => {
    daemon = await emptyDaemon(socket);
  });
  afterAll(() => {
    daemon.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  /** `clickhouse Started`, in the order in which the client says so */
  async function steps(args: readonly string[]): Promise<string[]> {
    const { stderr } = await compose(['--progress', 'plain', '--dry-run', ...args], {
      DOCKER_HOST: `unix://${socket}`,
      DOCKER_CONFIG: folder,
    });
    return [...stderr.matchAll(/Container sluice-([a-z-]+?)-(?:1|run-\w+) +(\w+)/g)].map(
      ([, name, step]) => `${name} ${step}`,
    );
  }

  test('starts each container when what it depends on is healthy, or has ended well', async () => {
    const seen = await steps(['up', '--detach', '--no-build']);
    const at = (step: string): number => {
      expect(seen).toContain(step);
      return seen.indexOf(step);
    };
    for (const [name, { depends_on: needs = {} }] of Object.entries((await resolved()).services)) {
      for (const [other, { condition, required }] of Object.entries(needs)) {
        expect(required).toBe(true);
        expect(
          at(`${other} ${condition === 'service_healthy' ? 'Healthy' : 'Exited'}`),
          `${name} after ${other}`,
        ).toBeLessThan(at(`${name} Starting`));
      }
    }
    expect(at('kafka Healthy')).toBeLessThan(at('create-topics Starting'));
    expect(at('clickhouse Healthy')).toBeLessThan(at('rollup Starting'));
    for (const name of ['ingest', 'query'])
      expect(Math.max(at('create-topics Exited'), at('rollup Healthy'))).toBeLessThan(at(`${name} Starting`));
  });

  test('a command of the runbook starts nothing beside itself', async () => {
    const commands = [
      ...readFileSync(join(ROOT, 'docs/runbook.md'), 'utf8').matchAll(/docker compose run ([^`]*?)(cli\.ts)/g),
    ];
    expect(commands.length).toBeGreaterThan(0);
    for (const [command, options, script] of commands) {
      const seen = await steps(['run', '--detach', ...options!.trim().split(/\s+/), script!]);
      expect(seen, command).toContain('query Created');
      expect(
        seen.filter((step) => !step.startsWith('query ')),
        command,
      ).toEqual([]);
    }
  });
});

describe('the health check of Kafka', () => {
  /** Exit code of the check against this address. */
  async function check(host: string, port: number): Promise<number> {
    const [kind, ...command] = (await resolved()).services['kafka']!.healthcheck!.test;
    expect(kind).toBe('CMD');
    const address = '/dev/tcp/localhost/9092';
    expect(command.join(' ')).toContain(address);
    // `config` writes each $ as $$, as it stands in the file
    const [program, ...args] = command.map((word) =>
      word.replaceAll('$$', '$').replace(address, `/dev/tcp/${host}/${port}`).replace(/^5$/, '1'),
    );
    return await new Promise((resolve, reject) => {
      spawn(program!, args, { stdio: 'ignore' })
        .once('error', reject)
        .once('exit', (code) => {
          resolve(code ?? -1);
        });
    });
  }

  test('passes on a broker that answers', async () => {
    const [host, port] = kafkaBrokers()[0]!.split(':');
    expect(await check(host!, Number(port))).toBe(0);
  });

  test.each([
    ['takes the connection and says nothing', () => undefined],
    ['ends the connection', (_data: Buffer) => null],
    ['answers with an error', () => Buffer.from('0000000a00000001002300000000', 'hex')],
    ['speaks something else', () => Buffer.from('HTTP/1.1 400 Bad Request\r\n\r\n')],
  ])('fails on what %s', async (_, answer) => {
    const server = createServer((socket) => {
      socket.on('error', () => undefined);
      socket.on('data', (data) => {
        const bytes = answer(data);
        if (bytes === null) socket.destroy();
        else if (bytes !== undefined) socket.write(bytes);
      });
    });
    await new Promise<void>((resolve) => {
      server.listen(0, '127.0.0.1', resolve);
    });
    try {
      expect(await check('127.0.0.1', (server.address() as AddressInfo).port)).not.toBe(0);
    } finally {
      server.close();
    }
  });

  test('fails where nothing listens', async () => {
    const server = createServer();
    await new Promise<void>((resolve) => {
      server.listen(0, '127.0.0.1', resolve);
    });
    const { port } = server.address() as AddressInfo;
    await new Promise((resolve) => {
      server.close(resolve);
    });
    expect(await check('127.0.0.1', port)).not.toBe(0);
  });
});
