import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect, Server, type AddressInfo } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import fastify from 'fastify';
import { afterEach, expect, test, vi } from 'vitest';
import { makeCertificate } from '../../../test/harness/certificates.ts';
import { temporaryFolder } from '../../../test/harness/temporary-folder.ts';
import { listenOnSockets } from './listen.ts';

const HOST = '127.0.0.1';
const CONNECTIONS = 64;
const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end();
});

async function start(port: number, answer: () => Promise<void> = async () => undefined, host = HOST) {
  const app = fastify();
  app.get('/', async (_, reply) => {
    await answer();
    return reply.header('connection', 'close').send('ok');
  });
  const { address, close } = await listenOnSockets(app, host, port);
  const stop = async (): Promise<void> => {
    await Promise.all([app.close(), close()]);
  };
  ends.push(stop);
  return { server: app.server, address, close, port: Number(new URL(address).port) };
}

// the sockets of one address are a matter of Linux
test.runIf(process.platform === 'linux')('many connections are accepted in few turns of the event loop', async () => {
  const { server, port } = await start(0);
  let accepted = 0;
  server.on('connection', (socket) => {
    accepted++;
    ends.push(() => socket.destroy());
  });
  const connect = `for (let i = 0; i < ${CONNECTIONS}; i++) require('node:net').connect(${port}, '${HOST}').on('error', () => undefined)`;
  const child = execFile(process.execPath, ['-e', connect]);
  ends.push(() => child.kill());
  // all of them wait before the first is accepted
  await once(child, 'spawn');
  for (const until = performance.now() + 1_500; performance.now() < until;);
  let turns = 0;
  for (; accepted < CONNECTIONS && turns < 10_000; turns++) await turn();
  expect(accepted).toBe(CONNECTIONS);
  expect(turns).toBeLessThan(CONNECTIONS / 2);
});

test.runIf(process.platform === 'linux')(
  'all sockets have one port, also where it is the default of HTTP',
  async () => {
    const app = fastify();
    const listen: (options: object) => Promise<string> = app.listen.bind(app);
    // a URL with the default port of its scheme has no port
    Object.assign(app, { listen: async (at: object) => (await listen(at)).replace(/\d+$/, '80') });
    const opened = vi.spyOn(Server.prototype, 'listen');
    ends.push(() => opened.mockRestore());
    const { close } = await listenOnSockets(app, HOST, 0);
    ends.push(async () => void (await Promise.all([app.close(), close()])));
    const sockets = (opened.mock.contexts as Server[]).filter(({ listening }) => listening);
    const ports = sockets.map((socket) => (socket.address() as AddressInfo).port);
    expect([ports.length, new Set(ports).size]).toEqual([8, 1]);
  },
);

test('a port on which another one listens is refused', async () => {
  const { port } = await start(0);
  await expect(start(port)).rejects.toMatchObject({ code: 'EADDRINUSE' });
});

test('the other sockets are closed when their requests are answered', async () => {
  const answering = Promise.withResolvers<void>();
  const { server, address, close } = await start(0, () => answering.promise);
  let asked = 0;
  const all = Promise.withResolvers<void>();
  server.on('request', () => ++asked === 16 && all.resolve());
  const answers = Array.from({ length: 16 }, async () => (await fetch(address)).text());
  await all.promise;
  let isClosed = false;
  const closed = close().then(() => (isClosed = true));
  for (let i = 0; i < 20; i++) await turn();
  expect(isClosed).toBe(false);
  answering.resolve();
  expect(await Promise.all(answers)).toEqual(Array.from({ length: 16 }, () => 'ok'));
  await closed;
});

test('localhost leads to the handlers of the app', async () => {
  const { port, address } = await start(0, undefined, 'localhost');
  expect(new URL(address).hostname).toBe(HOST);
  expect(await (await fetch(`http://localhost:${port}`)).text()).toBe('ok');
});

test('a caller that leaves before its TLS handshake leaves no socket open', async () => {
  const folder = temporaryFolder();
  ends.push(() => folder.remove());
  const { cert, key } = makeCertificate(folder.path, 'own');
  const app = fastify({ https: { cert: readFileSync(cert), key: readFileSync(key) } });
  let [accepted, closed] = [0, 0];
  app.server.on('connection', (socket) => {
    accepted++;
    socket.once('close', () => closed++);
  });
  const { close, destroyConnections } = await listenOnSockets(app, HOST, 0);
  ends.push(async () => {
    destroyConnections();
    await Promise.all([app.close(), close()]);
  });
  const { port } = app.server.address() as AddressInfo;
  for (let i = 0; i < CONNECTIONS; i++) connect(port, HOST).resume().end();
  await vi.waitFor(() => expect([accepted, closed]).toEqual([CONNECTIONS, CONNECTIONS]), 3_000);
});
