import { execFileSync, spawn } from 'node:child_process';
import { closeSync, constants, mkdtempSync, openSync, readFileSync, readSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import { afterAll, expect, test } from 'vitest';
import { createLogger, logStream } from './logger.ts';

const folder = mkdtempSync(join(tmpdir(), 'logger-'));
afterAll(() => rmSync(folder, { recursive: true }));

function logged(isTerminal: boolean): string {
  const file = join(folder, String(isTerminal));
  createLogger('info', logStream(isTerminal, file)).info({ topic: 'edge_logs', partition: 2 }, 'partition_taken');
  return readFileSync(file, 'utf8');
}

test('a terminal gets short lines with the time, the event and its fields', () => {
  const line = stripVTControlCharacters(logged(true));
  expect(line).toMatch(/^\[\d\d:\d\d:\d\d\] INFO: partition_taken \{"topic":"edge_logs","partition":2\}\n$/);
});

test('whatever is no terminal gets one JSON document a line', () => {
  expect(JSON.parse(logged(false))).toMatchObject({
    level: 30,
    msg: 'partition_taken',
    topic: 'edge_logs',
    partition: 2,
  });
});

test('a line waits until a full pipe is read', () => {
  const pipe = join(folder, 'pipe');
  execFileSync('mkfifo', [pipe]);
  const file = openSync(pipe, constants.O_RDWR | constants.O_NONBLOCK);
  const filled = Buffer.alloc(4096, '.');
  expect(() => {
    for (;;) writeSync(file, filled);
  }).toThrow('EAGAIN');
  spawn('sh', ['-c', 'sleep 0.05; exec head -c 16384 "$0"', pipe], { stdio: 'ignore' });
  createLogger('info', logStream(false, file)).info('after all');
  const rest = Buffer.alloc(2 ** 20);
  expect(rest.toString('latin1', 0, readSync(file, rest))).toMatch(/^\.+\{.*"msg":"after all"\}\n$/);
  closeSync(file);
});

test.each([true, false])('a line that cannot be written is lost, and disturbs nobody (terminal: %s)', (isTerminal) => {
  const logger = createLogger('info', logStream(isTerminal, '/dev/full'));
  expect(() => logger.fatal({ err: new Error('the reason') }, 'failed')).not.toThrow();
});
