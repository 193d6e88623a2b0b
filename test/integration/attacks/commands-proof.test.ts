import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { isProof, newNonce, proofOf, proofSecret, readProofSecret } from '../../../common/config/service-proof.ts';
import { endOf } from '../../../common/http/address.ts';
import { endAll, startScript } from '../../harness/service.ts';

// Guarantee: a command sends the admin key to nobody but the service of its data folder, and shows nothing that orders
// a terminal about.

const KEY = 'the-admin-key-of-the-tests';
const folder = mkdtempSync(join(tmpdir(), 'sluice-test-'));
const servers: Server[] = [];
afterAll(async () => {
  await endAll();
  for (const server of servers) {
    server.close();
    server.closeAllConnections();
  }
  rmSync(folder, { recursive: true, force: true });
});

interface Listener {
  readonly port: number;
  /** every header and path that came */
  readonly heard: string[];
}

/**
 * Somebody who listens; what `prove` gives for the nonce and the place where it arrived is sent as the proof, `result`
 * as the answer to a command.
 */
async function listen(
  prove: (nonce: string, arrivedAt: string) => unknown,
  result: unknown = {},
  { keepAlive = true, host = '127.0.0.1', port = 0 } = {},
): Promise<Listener> {
  const heard: string[] = [];
  const server = createServer((request, response) => {
    heard.push(`${request.url} ${JSON.stringify(request.headers)}`);
    const arrivedAt = endOf(request.socket.localAddress, request.socket.localPort);
    const nonce = new URL(request.url ?? '', 'http://x').searchParams.get('nonce');
    if (!keepAlive) response.setHeader('connection', 'close');
    void Promise.resolve(nonce === null ? undefined : prove(nonce, arrivedAt)).then((proof) =>
      response.end(JSON.stringify(nonce === null ? { result } : { proof })),
    );
  });
  servers.push(server);
  await new Promise<void>((resolve) => {
    server.listen(port, host, resolve);
  });
  return { port: (server.address() as AddressInfo).port, heard };
}

async function reconcile(
  port: number,
  dataDir: string,
  args: readonly string[] = [],
  more: Readonly<Record<string, string>> = {},
): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const command = startScript('reconcile', { DATA_DIR: dataDir, PORT: String(port), API_KEY: KEY, ...more }, args);
  return { code: await command.exited, stdout: command.stdout(), stderr: command.stderr() };
}

const secret = proofSecret(folder);
const account = { ok: true, partitions: [], faults: [] };

test('the secret of a data folder is created once, and only its owner can read it', () => {
  expect(proofSecret(folder)).toBe(secret);
  expect(secret).toMatch(/^[0-9a-f]{64}$/);
  expect(statSync(join(folder, 'service-proof')).mode & 0o777).toBe(0o600);
  expect(statSync(folder).mode & 0o777).toBe(0o700);
  expect(readFileSync(join(folder, 'service-proof'), 'utf8')).toBe(`${secret}\n`);
});

test('an empty file is no secret, because everybody knows it: neither side uses it', () => {
  const other = join(folder, 'other');
  proofSecret(other);
  writeFileSync(join(other, 'service-proof'), '');
  expect(readProofSecret(other)).toBeUndefined();
  expect(proofSecret(other)).toMatch(/^[0-9a-f]{64}$/);
  expect(readProofSecret(other)).toBe(proofSecret(other));
});

test('a proof is valid for one secret, one address, one port and one nonce', () => {
  const nonce = newNonce();
  const at = '127.0.0.1:4000';
  const proof = proofOf(secret, at, nonce);
  expect(isProof(secret, at, nonce, proof)).toBe(true);
  for (const [of, from, asked] of [
    [secret, '127.0.0.1:4001', nonce],
    [secret, '127.0.0.2:4000', nonce],
    [secret, at, newNonce()],
    [`${secret}0`, at, nonce],
  ] as const)
    expect(isProof(of, from, asked, proof)).toBe(false);
  for (const given of [undefined, '', 7, ['x'], proof!.slice(1), `${proof}0`])
    expect(isProof(secret, at, nonce, given)).toBe(false);
  expect(proofOf(secret, at, 'short')).toBeUndefined();
});

test('a listener without a proof gets no key, and the command says so', async () => {
  const strangers = [
    await listen(() => 'x'),
    await listen((nonce) => nonce),
    await listen(() => undefined),
    // asks the service itself, which listens on another port
    await listen((nonce, arrivedAt) => proofOf(secret, `${arrivedAt}1`, nonce)),
    // proves it, but then the call would go out on another connection
    await listen((nonce, arrivedAt) => proofOf(secret, arrivedAt, nonce), account, { keepAlive: false }),
  ];
  for (const { port, heard } of strangers) {
    const { code, stderr } = await reconcile(port, folder);
    expect(code).toBe(1);
    expect(stderr).toMatch(/does not prove to be the service of the data folder .*--url|the connection was closed/);
    expect(heard).toHaveLength(1);
    expect(heard.join('\n')).not.toContain(KEY);
  }
});

// macOS has no other loopback address
test.runIf(process.platform === 'linux')(
  'a listener at another address and the same port, which asks the service itself, gets no key',
  async () => {
    const service = await listen((nonce, arrivedAt) => proofOf(secret, arrivedAt, nonce), account);
    const relay = async (nonce: string): Promise<unknown> => {
      const answer = await fetch(`http://127.0.0.1:${service.port}/proof?nonce=${nonce}`);
      return ((await answer.json()) as { proof: unknown }).proof;
    };
    const thief = await listen(relay, account, { host: '127.0.0.2', port: service.port });
    const { code, stderr } = await reconcile(service.port, folder, [], { HOST: '127.0.0.2' });
    expect([code, stderr]).toEqual([1, expect.stringContaining('does not prove to be the service')]);
    expect([service.heard.length, thief.heard.length]).toEqual([1, 1]);
    expect(thief.heard.join('')).not.toContain(KEY);
  },
);

test('the service that proves itself gets the key, and so does an address that the operator names', async () => {
  const service = await listen((nonce, arrivedAt) => proofOf(secret, arrivedAt, nonce), account);
  expect(await reconcile(service.port, folder)).toMatchObject({ code: 0, stderr: '' });
  expect(service.heard.map((line) => line.includes(KEY))).toEqual([false, true]);
  // an IPv4 caller of a socket for both families
  const both = await listen((nonce, arrivedAt) => proofOf(secret, arrivedAt, nonce), account, { host: '' });
  for (const HOST of ['127.0.0.1', '0.0.0.0'])
    expect(await reconcile(both.port, folder, [], { HOST })).toMatchObject({ code: 0, stderr: '' });
  const named = await listen(() => undefined, account);
  expect((await reconcile(1, folder, ['--url', `http://127.0.0.1:${named.port}`])).code).toBe(0);
  expect(named.heard.map((line) => line.includes(KEY))).toEqual([true]);
});

test('output of a service is shown without control characters, as text and as JSON', async () => {
  const evil = { ok: false, partitions: [], faults: ['\u001b[2J\u001b]0;owned\u0007\u202e'] };
  const service = await listen((nonce, arrivedAt) => proofOf(secret, arrivedAt, nonce), evil);
  const shown = await reconcile(service.port, folder);
  expect(shown.stdout).toContain(String.raw`\u001b[2J\u001b]0;owned\u0007\u202e`);
  const json = await reconcile(service.port, folder, ['--json']);
  for (const { stdout, stderr } of [shown, json]) expect(stdout + stderr).not.toMatch(/[^\P{Cc}\n]|\u202e/u);
  expect(JSON.parse(json.stdout)).toMatchObject({ faults: evil.faults });
});

test('a mistyped DATA_DIR is named, not created; only a restore begins a data folder', async () => {
  const missing = join(folder, 'mistyped');
  for (const at of [missing, folder]) {
    const { code, stderr } = await reconcile(1, at);
    expect([code, stderr]).toEqual([
      1,
      `sluice: there is no data in ${at}; set DATA_DIR to the folder of the service, or run npm start first\n`,
    ]);
  }
  expect([existsSync(missing), existsSync(join(folder, 'clickhouse'))]).toEqual([false, false]);
  const settings = { DATA_DIR: missing, PORT: '1', BACKUP_PLACES: `local=${folder}` };
  const restore = startScript('backup', settings, ['restore', 'local/none']);
  expect([await restore.exited, restore.stderr()]).toEqual([1, expect.not.stringContaining('there is no data')]);
  expect(existsSync(missing)).toBe(true);
});
