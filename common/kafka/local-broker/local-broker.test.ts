import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { createLogger } from '../../logger.ts';
import { Unavailable } from './backend.ts';
import { containerName, containerUser, dockerFormat, dockerStart, startWithDocker } from './docker.ts';
import { javaMajor } from './java.ts';
import { lastLine } from './process.ts';
import { javaArguments, serverProperties } from './server-properties.ts';

test('the major version of Java is read from its output', () => {
  expect(javaMajor('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime')).toBe(17);
  expect(javaMajor('openjdk version "21" 2023-09-19')).toBe(21);
  expect(javaMajor('java version "1.8.0_402"')).toBe(8);
  expect(javaMajor('Picked up _JAVA_OPTIONS: -Xmx1g\nopenjdk version "24-ea" 2025')).toBe(24);
  expect(javaMajor('The operation could not be completed. Unable to locate a Java Runtime.')).toBeUndefined();
});

test('the container runs as our user, on this machine only, on one port, with an image by version', () => {
  const layout = { home: '/srv/sluice/kafka', port: 9092, user: '1000:1000' };
  const name = containerName(layout.home);
  expect(name).toMatch(/^sluice-kafka-[0-9a-f]{12}$/);
  expect(containerName('/srv/other/kafka')).not.toBe(name);
  expect(dockerStart(layout)).toEqual([
    'run',
    '--detach',
    '--name',
    name,
    '--publish',
    '127.0.0.1:9092:9092',
    '--user',
    '1000:1000',
    '--volume',
    '/srv/sluice/kafka:/sluice',
    '--workdir',
    '/sluice',
    '--entrypoint',
    'sh',
    'apache/kafka:4.1.0',
    '-c',
    'umask 077; exec java "$@"',
    'java',
    ...javaArguments('/opt/kafka/libs/*', 'kafka.Kafka', 'server.properties'),
  ]);
  expect(dockerFormat(layout)).toEqual([
    'run',
    '--rm',
    '--user',
    '1000:1000',
    '--volume',
    '/srv/sluice/kafka:/sluice',
    '--workdir',
    '/sluice',
    '--entrypoint',
    'sh',
    'apache/kafka:4.1.0',
    '-c',
    'umask 077; exec java "$@"',
    'java',
    ...javaArguments(
      '/opt/kafka/libs/*',
      'kafka.tools.StorageTool',
      'format',
      '--cluster-id',
      'c2x1aWNlLWxvY2FsLWJrcg',
      '--config',
      'server.properties',
      '--ignore-formatted',
    ),
  ]);
});

test("if Docker runs without root, the container's root is our user", () => {
  expect(containerUser('["name=seccomp,profile=builtin","name=cgroupns"]\n', 501, 20)).toBe('501:20');
  expect(containerUser('["name=seccomp,profile=builtin","name=rootless","name=cgroupns"]\n', 501, 20)).toBe('0:0');
});

test('a container that the daemon starts for an interrupted command is removed', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-docker-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  onTestFinished(() => void vi.unstubAllEnvs());
  const started = join(folder, 'container');
  // a daemon: the container begins at once, the command that asked for it answers later
  const script = `#!/bin/sh\ncase "$1" in run) touch '${started}'; exec sleep 30;; rm) rm -f '${started}';; esac\n`;
  writeFileSync(join(folder, 'docker'), script, { mode: 0o755 });
  vi.stubEnv('PATH', `${folder}:${process.env.PATH}`);
  mkdirSync(join(folder, 'data'));
  writeFileSync(join(folder, 'data', 'meta.properties'), '');
  const interrupt = new AbortController();
  const layout = { home: folder, port: 9092, user: '1000:1000' };
  const start = startWithDocker(layout, createLogger('silent'), interrupt.signal);
  await vi.waitFor(() => expect(existsSync(started)).toBe(true), 5_000);
  interrupt.abort();
  await expect(start).rejects.toThrow(Unavailable);
  expect(existsSync(started)).toBe(false);
});

test('the broker gets its settings from its layout', () => {
  const layout = { port: 9092, controllerPort: 40_001, bindHost: '0.0.0.0' };
  const lines = serverProperties({ ...layout, fsync: false }).split('\n');
  expect(lines).toContain('listeners=PLAINTEXT://0.0.0.0:9092,CONTROLLER://127.0.0.1:40001');
  expect(lines).toContain('advertised.listeners=PLAINTEXT://127.0.0.1:9092');
  expect(lines).toContain('controller.quorum.voters=1@127.0.0.1:40001');
  expect(lines).toContain('auto.create.topics.enable=false');
  expect(
    serverProperties({ ...layout, fsync: true })
      .split('\n')
      .filter((line) => !lines.includes(line)),
  ).toEqual(['log.flush.interval.messages=1']);
});

test('the cause of a failure is read from the end of an output', () => {
  const log =
    'INFO x\n[main] ERROR kafka.Kafka$ - Exiting\njava.io.IOException: no space\n\tat a.b(C.java:1)\n\t... 12 more\n\n';
  expect(lastLine(log)).toBe('java.io.IOException: no space');
  expect(lastLine(`${log}INFO closed\n`)).toBe('java.io.IOException: no space');
  expect(lastLine('WARN all is well\n')).toBe('WARN all is well');
  expect(lastLine('\n')).toBe('no output');
});
