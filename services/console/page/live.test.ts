import { afterEach, expect, test, vi } from 'vitest';
import { CallError } from './api.ts';
import { useLive } from './live.ts';

const api = vi.hoisted(() => ({
  callJson: vi.fn<(path: string, call: { signal: AbortSignal }) => Promise<unknown>>(),
}));
vi.mock('./api.ts', () => ({ ...api, CallError: class extends Error {} }));
// an effect runs at once, and nothing is rendered
vi.mock('preact/hooks', () => ({
  useEffect: (effect: () => unknown) => effect(),
  useRef: (current: unknown) => ({ current }),
  useState: (state: unknown) => [state, () => undefined],
}));
afterEach(() => {
  vi.restoreAllMocks();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test('a tab that becomes visible while a request is under way does not begin to ask twice as often', async () => {
  vi.useFakeTimers();
  const tab = Object.assign(new EventTarget(), { hidden: false });
  vi.stubGlobal('document', tab);
  vi.stubGlobal('window', globalThis);
  const first = Promise.withResolvers<unknown>();
  const answer = { result: { from: 0, steps: 360, step_seconds: 10, started_at: 0, endpoints: [], system: null } };
  api.callJson.mockReturnValueOnce(first.promise).mockResolvedValue(answer);
  useLive(true, () => undefined);
  for (let i = 0; i < 5; i++) tab.dispatchEvent(new Event('visibilitychange'));
  expect(api.callJson).toHaveBeenCalledTimes(1);
  first.resolve(answer);
  await vi.advanceTimersByTimeAsync(10_000);
  expect(api.callJson).toHaveBeenCalledTimes(11);
  // between two requests it asks at once, and still only once a second from then on
  await vi.advanceTimersByTimeAsync(500);
  tab.dispatchEvent(new Event('visibilitychange'));
  expect(api.callJson).toHaveBeenCalledTimes(12);
  await vi.advanceTimersByTimeAsync(10_000);
  expect(api.callJson).toHaveBeenCalledTimes(22);
});

test('a tab that becomes visible asks no sooner than the service has said', async () => {
  vi.useFakeTimers();
  const tab = Object.assign(new EventTarget(), { hidden: false });
  vi.stubGlobal('document', tab);
  vi.stubGlobal('window', globalThis);
  const refusal = Object.assign(new CallError('too many requests', {}), { status: 429, retryAfterMs: 60_000 });
  api.callJson.mockReset().mockRejectedValue(refusal);
  useLive(true, () => undefined);
  await vi.advanceTimersByTimeAsync(59_000);
  tab.dispatchEvent(new Event('visibilitychange'));
  expect(api.callJson).toHaveBeenCalledTimes(1);
  await vi.advanceTimersByTimeAsync(1_000);
  expect(api.callJson).toHaveBeenCalledTimes(2);
});

test('a service that takes a request and never answers is away after ten seconds, and is asked again', async () => {
  vi.useFakeTimers();
  vi.stubGlobal('document', Object.assign(new EventTarget(), { hidden: false }));
  vi.stubGlobal('window', globalThis);
  vi.spyOn(AbortSignal, 'timeout').mockImplementation((ms) => {
    const late = new AbortController();
    setTimeout(() => late.abort(), ms);
    return late.signal;
  });
  api.callJson.mockReset().mockImplementation(
    (_path, { signal }) =>
      new Promise((_, reject) => {
        signal.addEventListener('abort', () => reject(signal.reason as Error));
      }),
  );
  useLive(true, () => undefined);
  await vi.advanceTimersByTimeAsync(9_000);
  expect(api.callJson).toHaveBeenCalledTimes(1);
  await vi.advanceTimersByTimeAsync(4_000);
  expect(api.callJson).toHaveBeenCalledTimes(2);
});
