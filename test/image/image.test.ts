import { execFile } from 'node:child_process';
import { chownSync, existsSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { freePort } from '../../common/kafka/local-broker/local-broker.ts';
import { sources } from '../../common/sources.ts';
import {
  hasServer,
  openTestDatabase,
  openTestFace,
  temporaryFolder,
  type TestClickHouse,
} from '../harness/clickhouse.ts';
import { kafkaBrokers, produce, uniqueName } from '../harness/kafka.ts';
import { composeClient } from '../harness/tools.ts';
import { waitFor } from '../harness/wait-for.ts';
import { ROOT, buildImage, type Image } from './build.ts';
import { endContainers, startContainer, type Container } from './container.ts';

// Guarantee: the Dockerfile builds; its image holds what the three services need and nothing that only tests need;
// and they do their work from it as docker-compose.yml starts them: user 1000, no capability, nothing writable but /tmp
// and the volume of query.

const run = promisify(execFile);
const SERVICES = ['rollup', 'ingest', 'query'] as const;
type ServiceName = (typeof SERVICES)[number];

interface Resolved {
  readonly services: Readonly<
    Record<
      string,
      {
        readonly command: readonly string[];
        readonly environment: Readonly<Record<string, string>>;
        readonly healthcheck: { readonly test: readonly string[] };
      }
    >
  >;
}

const BUILD_MS = 20 * 60_000;

let image: Image;
let compose: Resolved;
let clickhouse: TestClickHouse;
const volume = temporaryFolder();

beforeAll(async () => {
  image = await buildImage();
  compose = JSON.parse(
    (await run(await composeClient(), ['--env-file', '/dev/null', 'config', '--format', 'json'], { cwd: ROOT })).stdout,
  ) as Resolved;
  clickhouse = hasServer() ? await openTestDatabase() : await openTestFace();
  chownSync(volume.path, 1000, 1000);
}, BUILD_MS);
afterAll(async () => {
  endContainers();
  await clickhouse.close();
  await image.remove();
  volume.remove();
});

describe('the image', () => {
  test('holds the product, and nothing of tests, demonstrations, benchmarks and the embedded engine', () => {
    const app = join(image.folder, 'app');
    expect(readdirSync(app).toSorted()).toEqual([
      'LICENSE',
      'cli.ts',
      'clickhouse',
      'common',
      'docs',
      'node_modules',
      'package.json',
      'schemas',
      'services',
    ]);
    const files = readdirSync(app, { recursive: true, encoding: 'utf8' }).filter(
      (name) => !name.startsWith('node_modules'),
    );
    expect(files.filter((name) => /\.test\.ts$|(^|\/)(simulation|demo|test|bench)(\/|$)/.test(name))).toEqual([]);
    expect(existsSync(join(app, 'services', 'all-in-one'))).toBe(false);
    for (const name of ['chdb', '@chdb', 'vitest', 'typescript'])
      expect(existsSync(join(app, 'node_modules', name)), name).toBe(false);
  });

  test('belongs to root but for the folder of data, declares no volume, and runs as the user node', () => {
    for (const path of ['app', 'app/services', 'app/node_modules', 'app/package.json'])
      expect(statSync(join(image.folder, path)).uid, path).toBe(0);
    expect(statSync(join(image.folder, 'data')).uid).toBe(1000);
    expect(image.config.User).toBe('node');
    expect(Object.keys(image.config.Volumes ?? {})).toEqual([]);
  });
});

describe('the three services', () => {
  const project = 'abcdefghijklmnopqrst';
  const suffix = uniqueName('image');
  const topicOf = (source: string): string => `${source}.${suffix}`;
  const containers = new Map<ServiceName, Container>();
  const environments = new Map<ServiceName, Record<string, string>>();
  const volumes = (name: ServiceName): Record<string, string> => (name === 'query' ? { '/data': volume.path } : {});

  /** As docker-compose.yml says, but for names and ports of this machine. */
  async function environmentOf(name: ServiceName): Promise<Record<string, string>> {
    const here: Record<string, string> = {
      CLICKHOUSE_URL: clickhouse.env.CLICKHOUSE_URL!,
      KAFKA_BROKERS: kafkaBrokers().join(','),
      PORT: String(await freePort()),
    };
    const { environment } = compose.services[name]!;
    return {
      ...Object.fromEntries(Object.entries(environment).map(([key, value]) => [key, here[key] ?? value])),
      HOST: '127.0.0.1',
      METRICS_PORT: String(await freePort()),
      KAFKA_TOPICS: sources.map((s) => `${s.name}=${topicOf(s.name)}`).join(','),
      KAFKA_GROUP_ID: suffix,
    };
  }

  /** Exit code of a health check in the container's environment: that of docker-compose.yml, which asks for readiness. */
  async function health(name: ServiceName, check = compose.services[name]!.healthcheck.test): Promise<number> {
    const [kind, ...command] = check;
    expect(kind).toBe('CMD');
    return await startContainer(image, { entrypoint: [], command, env: environments.get(name)! }).exited;
  }

  test('become healthy in the order of docker-compose.yml', async () => {
    for (const name of SERVICES) {
      environments.set(name, await environmentOf(name));
      const container = startContainer(image, {
        command: compose.services[name]!.command,
        env: environments.get(name)!,
        volumes: volumes(name),
      });
      containers.set(name, container);
      const ended = container.exited.then((code) => {
        throw new Error(`${name} ended with ${code}: ${container.stdout()}${container.stderr()}`);
      });
      ended.catch(() => undefined);
      expect(
        await Promise.race([
          ended,
          waitFor(async () => container.hasEnded() || (await health(name)) === 0, 60_000, `${name} is healthy`),
        ]),
      ).toBe(true);
      expect(await health(name, image.config.Healthcheck.Test), 'the image says that it lives').toBe(0);
    }
  }, 200_000);

  test('can write nowhere but to /tmp and, query, to its volume', async () => {
    const attempts = ['/app/x', '/data/x', '/etc/x', '/tmp/x'];
    const script = `import('node:fs').then((fs) => console.log(JSON.stringify([process.getuid(), ...${JSON.stringify(attempts)}.map((path) => { try { fs.writeFileSync(path, ''); return 'written'; } catch (error) { return error.code; } })])))`;
    const written = async (name: ServiceName): Promise<unknown> => {
      const container = startContainer(image, { command: ['-e', script], env: {}, volumes: volumes(name) });
      await container.exited;
      return JSON.parse(container.stdout());
    };
    expect(await written('ingest')).toEqual([1000, 'EROFS', 'EROFS', 'EROFS', 'written']);
    expect(await written('query')).toEqual([1000, 'EROFS', 'written', 'EROFS', 'written']);
  });

  test('an event that Kafka has comes out of an endpoint, with the key that query made and kept in its volume', async () => {
    const key = /key: (\S+)/.exec(containers.get('query')!.stdout())?.[1];
    expect(key).toBeDefined();
    expect(statSync(join(volume.path, 'api-key')).mode & 0o777).toBe(0o600);
    const event = {
      id: 'from-the-image',
      project,
      timestamp: Date.now() * 1000,
      event_message: 'GET | 200',
      metadata: { request: { url: `https://${project}.example.com/rest/v1/x`, path: '/rest/v1/x' } },
    };
    await produce([{ topic: topicOf('edge_logs'), value: JSON.stringify(event) }], { compression: 'snappy' });
    await produce([{ topic: topicOf('edge_logs'), value: JSON.stringify({ ...event, id: 'in-lz4' }) }], {
      compression: 'lz4',
    });
    const address = `http://127.0.0.1:${environments.get('query')!['PORT']}`;
    const rows = await waitFor(
      async () => {
        const response = await fetch(`${address}/api/endpoints/logs.all?project=${project}`, {
          headers: { 'x-api-key': key! },
        });
        const { result } = (await response.json()) as { result?: { id: string }[] };
        return result?.length === 2 && result;
      },
      30_000,
      'both events are in logs.all',
    );
    expect(new Set(rows.map(({ id }) => id))).toEqual(new Set(['from-the-image', 'in-lz4']));
  });

  test("an operator's command runs from the image", async () => {
    const command = startContainer(image, {
      command: ['cli.ts', 'reconcile', '--json'],
      env: environments.get('ingest')!,
    });
    expect(await command.exited, command.stderr()).toBe(0);
    expect(JSON.parse(command.stdout())).toMatchObject({ ok: true });
  });

  test('end with 0 on the stop signal, within the time that docker-compose.yml gives them', async () => {
    const codes = await Promise.all(
      SERVICES.toReversed().map(async (name) => [name, await containers.get(name)!.stop()] as const),
    );
    expect(Object.fromEntries(codes), [...containers.values()].map((c) => c.stderr()).join('\n')).toEqual({
      rollup: 0,
      ingest: 0,
      query: 0,
    });
  }, 15_000);
});
