import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
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

test('a line that cannot be written is lost, and disturbs nobody', () => {
  const logger = createLogger('info', logStream(false, '/dev/full'));
  expect(() => logger.fatal({ err: new Error('the reason') }, 'failed')).not.toThrow();
});
