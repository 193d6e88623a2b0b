import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { afterEach, expect, test, vi } from 'vitest';
import { helpOf } from './command-line.ts';
import { form, type Command } from './command.ts';
import { runCommandLine } from './run-command.ts';

const command: Command<Record<string, never>, null> = {
  name: 'carry',
  needs: 'CLICKHOUSE_URL',
  about: '',
  forms: { '': form({ help: 'carries', read: () => ({}) }) },
  run: () => Promise.reject(new Error('runs')),
  print: () => '',
};

afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
  process.exitCode = 0;
});

test('the help of a command that never runs in a service names none', () => {
  expect(helpOf(command)).not.toMatch(/--url|key/);
});

test.each([
  [[], 78, 'sluice: npm run carry needs CLICKHOUSE_URL\n'],
  [
    ['--url', 'http://127.0.0.1:1'],
    64,
    'this command asks no service, so it takes no --url; see npm run carry -- --help\n',
  ],
])('a command that never runs in a service asks none: %j', async (words, code, line) => {
  vi.stubEnv('CLICKHOUSE_URL', undefined);
  const written = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
  await runCommandLine(command, words);
  expect([process.exitCode, written.mock.calls.map(([text]) => text)]).toEqual([code, [line]]);
});

test.each([
  [400, 64, 'refuses: it is wrong; see npm run ask -- --help'],
  [403, 1, 'refuses: it is wrong'],
])('a service that answers %i: exit code %i', async (status, code, line) => {
  const server = createServer((_, response) => {
    response.writeHead(status).end(JSON.stringify({ error: { message: 'it is wrong' } }));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const written = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
  const { needs: _, ...asking } = command;
  await runCommandLine({ ...asking, name: 'ask' }, ['--url', url]);
  server.close();
  expect([process.exitCode, written.mock.calls.join('')]).toEqual([code, expect.stringContaining(line)]);
});

test('a reader that closes the pipe early ends no command with an error', async () => {
  const child = spawn(process.execPath, [fileURLToPath(new URL('../../cli.ts', import.meta.url)), 'move', '--help']);
  child.stdout.destroy();
  const [said, [code]] = await Promise.all([text(child.stderr), once(child, 'exit')]);
  expect([code, said]).toEqual([0, '']);
});
