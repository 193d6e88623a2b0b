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

test('a service that does not run a command is told from one that refuses, and the operator learns what to set', async () => {
  const server = createServer((_, response) => {
    response.writeHead(404).end(JSON.stringify({ error: { message: 'there is nothing at this path' } }));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  const url = `http://127.0.0.1:${port}`;
  const written = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
  const { needs: _, ...asking } = command;
  const hint = 'set CLICKHOUSE_URL to the ClickHouse that it uses\n';
  await runCommandLine({ ...asking, name: 'ask' }, ['--url', url]);
  const named = `sluice: the service at ${url} does not run this command: ${hint}`;
  expect([process.exitCode, written.mock.calls.join('')]).toEqual([1, named]);
  written.mockClear();
  vi.stubEnv('CLICKHOUSE_URL', undefined);
  vi.stubEnv('HOST', '127.0.0.1');
  vi.stubEnv('PORT', String(port));
  await runCommandLine({ ...asking, name: 'ask' }, []);
  server.close();
  expect([process.exitCode, written.mock.calls.join('')]).toEqual([
    1,
    expect.stringMatching(/does not prove .* If it is npm run query, set CLICKHOUSE_URL /),
  ]);
  expect(written.mock.calls.join('')).toContain(hint);
});

/** A server that answers the questions of the start, and every other statement with this. */
async function clickhouseThat(status: number, body: string): Promise<{ url: string; close: () => void }> {
  const server = createServer((request, response) => {
    void text(request).then((sql) => {
      const start = /version\(\)/.test(sql) ? '26.3.1.1\n' : /system\.settings/.test(sql) ? 'max_threads\n' : undefined;
      return response
        .writeHead(start === undefined ? status : 200, { 'X-ClickHouse-Query-Id': 'x' })
        .end(start ?? body);
    });
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}/sluice`, close: () => server.close() };
}

test.each([
  [
    'read',
    403,
    'Code: 497. DB::Exception: ops: Not enough privileges. (ACCESS_DENIED) (version 26.3.1.1)',
    /^sluice: ClickHouse: Code: 497\. .*26\.3\.1\.1\)\n$/,
  ],
  [
    'read',
    504,
    '<html>\n<title>504 Gateway Time-out</title>\n</html>\n',
    /^sluice: ClickHouse: HTTP 504: <html> <title>504 Gateway Time-out<\/title> <\/html>\n$/,
  ],
  ['execute', 504, 'late', /^sluice: ClickHouse: HTTP 504: late; its outcome is unknown: look there\n$/],
] as const)(
  'what fails at ClickHouse is one line, without a stack: a %s, status %i',
  async (what, status, body, line) => {
    const { url, close } = await clickhouseThat(status, body);
    vi.stubEnv('CLICKHOUSE_URL', url);
    const written = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
    await runCommandLine(
      {
        ...command,
        afterUnknown: 'look there',
        run: async ({ clickhouse }) => {
          if (what === 'execute') await clickhouse.execute({ sql: 'INSERT INTO t SELECT 1' });
          else await clickhouse.read({ sql: 'SELECT 1', format: 'Null' });
          return null;
        },
      },
      [],
    );
    close();
    expect(process.exitCode).toBe(1);
    expect(written.mock.calls.map(([said]) => String(said)).filter((said) => said.startsWith('sluice:'))).toEqual([
      expect.stringMatching(line),
    ]);
  },
);

test('a service may work on a command for hours, and a limit that passes is named', async () => {
  const limits: number[] = [];
  const timeout = AbortSignal.timeout.bind(AbortSignal);
  vi.spyOn(AbortSignal, 'timeout').mockImplementation((ms) => {
    limits.push(ms);
    return timeout(50);
  });
  vi.stubEnv('CLICKHOUSE_URL', undefined);
  const server = createServer(() => undefined);
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  vi.stubEnv('HOST', '127.0.0.1');
  vi.stubEnv('PORT', String(port));
  const written = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
  const { needs: _, ...asking } = command;
  await runCommandLine(asking, ['--url', `http://127.0.0.1:${port}`]);
  await runCommandLine(asking, []);
  server.closeAllConnections();
  server.close();
  expect(limits).toEqual([86_400_000, 30_000]);
  expect(written.mock.calls.join('\n')).toMatch(/ gave no answer within 86400 s\n.* gave no answer within 30 s\n/s);
});

test('JSON text of a command is printed as it is, and any other result as JSON', async () => {
  const server = createServer((_, response) => {
    response.end('{"result":{"a":1}}');
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const written = vi.spyOn(process.stdout, 'write').mockImplementation((_text, done) => {
    (done as unknown as () => void)();
    return true;
  });
  const { needs: _, ...asking } = command;
  const text = '{"n":12345678901234567,"f":1.10}';
  await runCommandLine({ ...asking, json: () => text }, ['--json', '--url', url]);
  await runCommandLine(asking, ['--json', '--url', url]);
  server.close();
  expect(written.mock.calls.map(([line]) => line)).toEqual([`${text}\n`, '{"a":1}\n']);
});

test('a reader that closes the pipe early ends no command with an error', async () => {
  const child = spawn(process.execPath, [fileURLToPath(new URL('../../cli.ts', import.meta.url)), 'move', '--help']);
  child.stdout.destroy();
  const [said, [code]] = await Promise.all([text(child.stderr), once(child, 'exit')]);
  expect([code, said]).toEqual([0, '']);
});

test.each(['SIGINT', 'SIGTERM'] as const)(
  'a backup that %s interrupts is said to go on unchecked, and fails',
  async (signal) => {
    const asked = Promise.withResolvers<void>();
    const server = createServer(() => asked.resolve());
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const cli = fileURLToPath(new URL('../../cli.ts', import.meta.url));
    const child = spawn(process.execPath, [cli, 'backup', 'create', 'local/monday', '--url', url]);
    const [said, ended] = [text(child.stderr), once(child, 'exit')];
    await asked.promise;
    child.kill(signal);
    expect([await ended, await said]).toEqual([
      [130, null],
      'sluice: ClickHouse may go on with the backup local/monday, and nobody checks it any more; delete it, and repeat under another name\n',
    ]);
    server.closeAllConnections();
    server.close();
  },
);
