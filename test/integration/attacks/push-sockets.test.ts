import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { waitFor } from '../../harness/wait-for.ts';
import { whileAlive } from './alive.ts';
import { announce, openPushWorld, type PushWorld, type RawCall } from './push-world.ts';

// Guarantee: push belongs to nobody. Bodies count when their bytes come, a key takes at most its share, and a caller
// that stops loses its socket.

const MiB = 1024 * 1024;
/** the smallest that the setting allows */
const BUFFER = 96 * MiB;
const event = '[{"project":"p"}]';
/** Before: thirteen announced bodies took all of PUSH_BUFFER_BYTES. */
const MANY = 26;
/** the service waits this long for the next byte */
const IDLE_MS = 15_000;
const IDLE_ENDED_MS = 18_000;

/** Timers of the bodies that the service, in this process, still receives; by timer, what each does after IDLE_MS. */
const idle = new Map<unknown, () => void>();
const { setTimeout: startTimer, clearTimeout: stopTimer } = globalThis;

/** The first test waits by the wall clock. For the others the time is over at once, for every body that still comes. */
function endIdleTime(): void {
  for (const end of idle.values()) end();
}

/** Keeps probing a closed-or-not socket: a half-open one is only known to be gone when something is written to it. */
async function ended({ socket }: RawCall): Promise<void> {
  await waitFor(
    () => {
      if (!socket.destroyed && socket.writable) socket.write('0');
      return socket.destroyed || !socket.writable;
    },
    5_000,
    'the service has destroyed the socket',
  );
}

describe('push', () => {
  let world: PushWorld;
  let attacker: string;
  let other: string;

  beforeAll(async () => {
    vi.spyOn(globalThis, 'setTimeout').mockImplementation((work: () => void, ms?: number, ...rest: []) => {
      const timer = startTimer(work, ms, ...rest);
      if (ms === IDLE_MS) idle.set(timer, work);
      return timer;
    });
    vi.spyOn(globalThis, 'clearTimeout').mockImplementation((timer) => {
      idle.delete(timer);
      stopTimer(timer);
    });
    world = await openPushWorld({ PUSH_BUFFER_BYTES: String(BUFFER) });
    [attacker, other] = await Promise.all([world.createKey({ name: 'attacker' }), world.createKey({ name: 'other' })]);
  });
  afterAll(async () => {
    await world?.close();
    vi.restoreAllMocks();
    idle.clear();
  });

  it('sockets that announce bodies and send none take nothing from anybody, and are answered and destroyed after 15 s', async () => {
    const calls: RawCall[] = [];
    await whileAlive(world.address, async () => {
      for (let i = 0; i < MANY; i++)
        calls.push(await announce(world.address, attacker, i % 2 === 0 ? 10 * MiB : 'chunked'));
      expect(await world.heldBytes()).toBe(0);
      for (const key of [attacker, other]) expect((await world.push(key, event)).text).toBe('{"message":"Logged!"}');
      expect([idle.size, calls.filter((call) => call.answer() !== '').length]).toEqual([MANY, 0]);
      await waitFor(
        () => calls.every((call) => call.answer().includes('\r\n\r\n{')),
        IDLE_ENDED_MS,
        'every idle body is answered',
      );
      for (const call of calls) expect(call.answer()).toMatch(/^HTTP\/1\.1 408 [\s\S]*"code":"request_timeout"/);
      await Promise.all(calls.map(ended));
    });
  });

  it('a key that sends bodies and never ends them fills its own share; others push meanwhile, and all of it is given back', async () => {
    const part = Buffer.alloc(9 * MiB, ' ');
    const calls: RawCall[] = [];
    await whileAlive(world.address, async () => {
      for (let i = 0; i < 8; i++) calls.push(await announce(world.address, attacker, 10 * MiB, part));
      await waitFor(
        () => calls.some((call) => call.answer().startsWith('HTTP/1.1 429 ')),
        10_000,
        'the attacker is told that its share is full',
      );
      expect(await world.heldBytes()).toBeLessThanOrEqual(BUFFER / 2);
      for (let i = 0; i < 5; i++) expect((await world.push(other, event)).status).toBe(200);
      expect((await world.push(other, Buffer.from(`[{"project":"p"}${' '.repeat(5 * MiB)}]`))).status).toBe(200);
      endIdleTime();
      await waitFor(
        () => calls.every((call) => /^HTTP\/1\.1 4(08|29) /.test(call.answer())),
        IDLE_ENDED_MS,
        'every body is answered',
      );
      await Promise.all(calls.map(ended));
      await waitFor(async () => (await world.heldBytes()) === 0, 5_000, 'nothing is held');
    });
    expect((await world.push(attacker, event)).status).toBe(200);
  });

  it('a caller that is refused before its body has come gets the answer, then loses its socket though it goes on sending', async () => {
    const call = await announce(world.address, 'no-key-at-all', 10 * MiB, Buffer.alloc(MiB));
    await waitFor(() => call.answer() !== '', 5_000, 'it is told');
    expect(call.answer()).toMatch(/^HTTP\/1\.1 401 /);
    await ended(call);
  });
});
