import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, expect, test } from 'vitest';
import { readSettings } from '../../../common/config/settings.ts';
import { StartError } from '../../../common/errors.ts';
import { startBroker } from '../../../common/kafka/broker.ts';
import {
  freePort,
  startLocalBroker,
  type LocalBroker,
  type LocalBrokerOptions,
} from '../../../common/kafka/local-broker/local-broker.ts';
import { probe } from '../../../common/kafka/probe.ts';
import { createLogger } from '../../../common/logger.ts';
import { createTopic, produce, readAll } from '../../harness/kafka.ts';

// Guarantees of the Kafka that `npm start` brings along: its data is there after any end, and it is never lost sight
// of.

const { CACHE_DIR, JAVA_HOME } = readSettings();
const undo: (() => Promise<void> | void)[] = [];

afterEach(async () => {
  for (let step = undo.pop(); step !== undefined; step = undo.pop()) await step();
});

async function options(): Promise<LocalBrokerOptions> {
  const dataDir = mkdtempSync(join(tmpdir(), 'sluice-test-kafka-'));
  undo.push(() => rmSync(dataDir, { recursive: true, force: true }));
  return { dataDir, port: await freePort(), cacheDir: CACHE_DIR, javaHome: JAVA_HOME, logger: createLogger('error') };
}

async function start(options: LocalBrokerOptions): Promise<LocalBroker> {
  const broker = await startLocalBroker(options);
  undo.push(() => broker.stop());
  return broker;
}

/** a process that has started a broker */
async function startInProcess({ dataDir, port }: LocalBrokerOptions): Promise<ChildProcess> {
  const script = fileURLToPath(new URL('broker-process.ts', import.meta.url));
  const child = spawn(
    process.execPath,
    [script, dataDir, String(port), CACHE_DIR, ...(JAVA_HOME === undefined ? [] : [JAVA_HOME])],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
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

async function values(topic: string, { brokers }: LocalBroker): Promise<(string | undefined)[]> {
  return (await readAll(topic, { brokers })).map(({ message }) => message.value?.toString());
}

async function answers(port: number): Promise<boolean> {
  return (await probe({ host: '127.0.0.1', port }, 1_000)).kind === 'kafka';
}

test('stopped and started again, it has its data', async () => {
  const where = await options();
  const first = await start(where);
  const topic = await fill(first);
  await first.stop();
  expect(await answers(where.port)).toBe(false);
  const second = await start(where);
  expect(second.found).toBe(false);
  expect(await values(topic, second)).toEqual(['a', 'b', 'c']);
});

test('killed, it says so, and has its data after the next start', async () => {
  const where = await options();
  const first = await start(where);
  const topic = await fill(first);
  if (first.run.kind === 'java') process.kill(first.run.pid, 'SIGKILL');
  else await once(spawn('docker', ['kill', first.run.container]), 'exit');
  await expect(first.failed).rejects.toThrow(StartError);
  const second = await start(where);
  expect(await values(topic, second)).toEqual(['a', 'b', 'c']);
});

test('with FSYNC it waits for the disk with every batch of records', async () => {
  const { dataDir, port, logger } = await options();
  const broker = await startBroker(
    { ...readSettings({ DATA_DIR: dataDir, KAFKA_PORT: String(port), FSYNC: 'true' }), CACHE_DIR, JAVA_HOME },
    logger,
  );
  undo.push(() => broker.stop());
  expect(await answers(port)).toBe(true);
  expect(readFileSync(join(dataDir, 'kafka', 'server.properties'), 'utf8')).toContain(
    '\nlog.flush.interval.messages=1\n',
  );
});

test('left running by a process that was killed, it is found again, and stopped in the end', async () => {
  const where = await options();
  const parent = await startInProcess(where);

  // while its owner lives, nobody else gets it
  await expect(startLocalBroker(where)).rejects.toThrow(
    `the data folder ${where.dataDir} is in use by process ${parent.pid}`,
  );

  parent.kill('SIGKILL');
  await once(parent, 'exit');
  expect(await answers(where.port)).toBe(true);
  const broker = await start(where);
  expect(broker.found).toBe(true);
  expect(await values(await fill(broker), broker)).toEqual(['a', 'b', 'c']);
  await broker.stop();
  expect(await answers(where.port)).toBe(false);
});

test('left running on another port than is wanted now, it is replaced and has its data', async () => {
  const where = await options();
  const parent = await startInProcess(where);
  const topic = await createTopic('kept', { brokers: [`127.0.0.1:${where.port}`] });
  parent.kill('SIGKILL');
  await once(parent, 'exit');
  const broker = await start({ ...where, port: await freePort() });
  expect(broker.found).toBe(false);
  expect(await answers(where.port)).toBe(false);
  expect(await values(topic, broker)).toEqual([]);
});

test('a port in use is one clear line, by another Kafka and by another program', async () => {
  const { port, ...running } = await options();
  await start({ port, ...running });
  await expect(startLocalBroker({ ...(await options()), port })).rejects.toThrow(
    `another Kafka runs on 127.0.0.1:${port}: set KAFKA_BROKERS=127.0.0.1:${port} to use it, or KAFKA_PORT to start our own beside it`,
  );

  const where = await options();
  const other = net.createServer().listen(where.port, '127.0.0.1');
  undo.push(() => {
    other.close();
  });
  await once(other, 'listening');
  await expect(startLocalBroker(where)).rejects.toThrow(
    `the port 127.0.0.1:${where.port} of the local Kafka is in use by another program: set KAFKA_PORT to a free one`,
  );
});

test('without Docker and Java the three ways are named', async () => {
  const where = await options();
  const path = process.env['PATH'];
  undo.push(() => {
    process.env['PATH'] = path;
  });
  process.env['PATH'] = '';
  const failed = startLocalBroker({ ...where, javaHome: undefined });
  await expect(failed).rejects.toThrow(StartError);
  await expect(failed).rejects.toThrow(
    /^there is no Kafka: set KAFKA_BROKERS=host:port to use a running one, or install Docker, or install Java 17 and Maven \(Docker does not answer \(.*\); Java is not installed \(.*\)\)$/,
  );
});

test('a data folder that cannot be made is one clear line', async () => {
  const where = await options();
  writeFileSync(join(where.dataDir, 'file'), '');
  await expect(startLocalBroker({ ...where, dataDir: join(where.dataDir, 'file') })).rejects.toThrow(
    /^cannot write to the data folder .*file \(EEXIST\); set DATA_DIR to a folder of your own$/,
  );
});
