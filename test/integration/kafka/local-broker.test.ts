import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, expect, test, vi } from 'vitest';
import { readSettings, type Settings } from '../../../common/config/settings.ts';
import { StartError } from '../../../common/errors.ts';
import { freePort, startLocalBroker, type LocalBroker } from '../../../common/kafka/local-broker/local-broker.ts';
import { probe } from '../../../common/kafka/probe.ts';
import { createLogger } from '../../../common/logger.ts';
import { startScript } from '../../harness/service.ts';
import { createTopic, killBroker, produce, readAll } from '../../harness/kafka.ts';

// Guarantees of the Kafka that `npm start` brings along: its data is there after any end, and it is never lost sight
// of.

const logger = createLogger('error');
const undo: (() => Promise<void> | void)[] = [];

afterEach(async () => {
  for (let step = undo.pop(); step !== undefined; step = undo.pop()) await step();
});

async function options(): Promise<Settings> {
  const dataDir = mkdtempSync(join(tmpdir(), 'sluice test zürich '));
  undo.push(() => rmSync(dataDir, { recursive: true, force: true }));
  return { ...readSettings(), DATA_DIR: dataDir, KAFKA_PORT: await freePort() };
}

async function start(settings: Settings): Promise<LocalBroker> {
  const broker = await startLocalBroker(settings, logger);
  undo.push(() => broker.stop());
  return broker;
}

/** a process that has started a broker */
async function startInProcess({ DATA_DIR, KAFKA_PORT }: Settings): Promise<ChildProcess> {
  const script = fileURLToPath(new URL('broker-process.ts', import.meta.url));
  const child = spawn(process.execPath, [script], {
    env: { ...process.env, DATA_DIR, KAFKA_PORT: String(KAFKA_PORT) },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await once(child.stdout, 'data');
  return child;
}

/** a topic with three records */
async function fill({ brokers }: LocalBroker): Promise<string> {
  const topic = await createTopic('kept', { brokers });
  await produce(
    ['a', 'b', 'c'].map((value) => ({ topic, value })),
    { brokers },
  );
  return topic;
}

async function values(topic: string, { brokers }: Pick<LocalBroker, 'brokers'>): Promise<(string | undefined)[]> {
  return (await readAll(topic, { brokers })).map(({ message }) => message.value?.toString());
}

async function answers(port: number): Promise<boolean> {
  return (await probe(`127.0.0.1:${port}`, 1_000)).kind === 'kafka';
}

test('stopped and started again, it has its data, also where the locale is not UTF-8', async () => {
  vi.stubEnv('LC_ALL', 'C');
  undo.push(() => void vi.unstubAllEnvs());
  const where = await options();
  const first = await start(where);
  const topic = await fill(first);
  await first.stop();
  expect(await answers(where.KAFKA_PORT)).toBe(false);
  const second = await start(where);
  expect(await values(topic, second)).toEqual(['a', 'b', 'c']);
});

test('killed, it says so, and has its data after the next start', async () => {
  const where = await options();
  const first = await start(where);
  const topic = await fill(first);
  await killBroker(first);
  await expect(first.failed).rejects.toThrow(StartError);
  const second = await start(where);
  expect(await values(topic, second)).toEqual(['a', 'b', 'c']);
});

test('with FSYNC it waits for the disk with every batch of records', async () => {
  const where = await options();
  await start({ ...where, FSYNC: true });
  expect(await answers(where.KAFKA_PORT)).toBe(true);
  expect(readFileSync(join(where.DATA_DIR, 'kafka', 'server.properties'), 'utf8')).toContain(
    '\nlog.flush.interval.messages=1\n',
  );
});

test('left running by a process that was killed, it is replaced, also on another port, and has its data', async () => {
  const where = await options();
  const parent = await startInProcess(where);
  const brokers = [`127.0.0.1:${where.KAFKA_PORT}`];
  const topic = await createTopic('kept', { brokers });
  await produce([{ topic, value: 'a' }], { brokers });

  // while its owner lives, nobody else gets it
  await expect(startLocalBroker(where, logger)).rejects.toThrow(
    `the data folder ${where.DATA_DIR} is in use by process ${parent.pid}`,
  );

  parent.kill('SIGKILL');
  await once(parent, 'exit');
  expect(await answers(where.KAFKA_PORT)).toBe(true);
  const broker = await start({ ...where, KAFKA_PORT: await freePort() });
  expect(await answers(where.KAFKA_PORT)).toBe(false);
  expect(await values(topic, broker)).toEqual(['a']);
  await broker.stop();
  expect((await start(where)).brokers).toEqual(brokers);
  expect(await values(topic, { brokers })).toEqual(['a']);
});

test('a port in use is one clear line, which says how to use the Kafka there', async () => {
  const where = await options();
  const { KAFKA_PORT: port } = where;
  const other = net.createServer().listen(port, '127.0.0.1');
  undo.push(() => {
    other.close();
  });
  await once(other, 'listening');
  const line = `the port 127.0.0.1:${port} of the local Kafka is in use: set KAFKA_BROKERS=127.0.0.1:${port} if a Kafka runs there, or KAFKA_PORT to a free one`;
  await expect(startLocalBroker(where, logger)).rejects.toThrow(line);

  // the first start creates the schema meanwhile, and is cut off
  const { DATA_DIR } = await options();
  const cutOff = startScript('start', { DATA_DIR, KAFKA_PORT: String(port), PORT: '0' });
  expect(await cutOff.exited).toBe(1);
  expect(cutOff.stderr()).toContain(`sluice: ${line}`);
  expect(cutOff.stdout() + cutOff.stderr()).not.toContain('"level":60');
});

test('without Docker and Java the three ways are named', async () => {
  const where = await options();
  const path = process.env['PATH'];
  undo.push(() => {
    process.env['PATH'] = path;
  });
  process.env['PATH'] = '';
  const failed = startLocalBroker({ ...where, JAVA_HOME: undefined }, logger);
  await expect(failed).rejects.toThrow(StartError);
  await expect(failed).rejects.toThrow(
    /^there is no Kafka: set KAFKA_BROKERS=host:port to use a running one, or install Docker, or install Java 17 and Maven \(Docker does not answer \(.*\); Java is not installed \(.*\)\)$/,
  );
});

test('a data folder that cannot be made is one clear line', async () => {
  const where = await options();
  writeFileSync(join(where.DATA_DIR, 'file'), '');
  await expect(startLocalBroker({ ...where, DATA_DIR: join(where.DATA_DIR, 'file') }, logger)).rejects.toThrow(
    /^cannot write to the data folder .*file \(EEXIST\); set DATA_DIR to a folder of your own$/,
  );
});
