import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { ApiError } from '../../../common/http/errors.ts';
import { receiveBody } from './receive-body.ts';

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
});
afterEach(() => {
  vi.useRealTimers();
});
const failure = async (body: ReturnType<typeof receiveBody>): Promise<unknown> =>
  await text(body).catch((error: unknown) => error);

test('a body passes as it came, and every piece is counted when it comes', async () => {
  const payload = new PassThrough();
  const taken: number[] = [];
  const body = text(receiveBody(payload, (bytes) => taken.push(bytes)));
  payload.write('abc');
  payload.end('de');
  expect(await body).toBe('abcde');
  expect(taken).toEqual([3, 2]);
});

test('a body that stops for 15 seconds ends with 408, and every byte begins them anew', async () => {
  const payload = new PassThrough();
  const body = receiveBody(payload, () => undefined);
  const ended = failure(body);
  for (let i = 0; i < 4; i++) {
    payload.write('x');
    await new Promise((resolve) => {
      setImmediate(resolve);
    });
    vi.advanceTimersByTime(14_900);
    expect(body.destroyed).toBe(false);
  }
  vi.advanceTimersByTime(200);
  expect(await ended).toMatchObject({ code: 'request_timeout', status: 408 });
});

test('a piece that is refused ends the body', async () => {
  const payload = new PassThrough();
  const body = failure(
    receiveBody(payload, () => {
      throw new ApiError('rate_limited', 'full');
    }),
  );
  payload.write('x');
  expect(await body).toMatchObject({ code: 'rate_limited' });
});

test('a caller that leaves ends the body, and a body that is whole leaves no timer', async () => {
  const gone = new PassThrough();
  const body = failure(receiveBody(gone, () => undefined));
  gone.destroy();
  expect(await body).toBeInstanceOf(ApiError);
  const unread = new PassThrough();
  receiveBody(unread, () => undefined);
  unread.end();
  await new Promise((resolve) => {
    setImmediate(resolve);
  });
  expect(vi.getTimerCount()).toBe(0);
});
