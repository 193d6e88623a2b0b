import { createRequire } from 'node:module';

/** The part of kafkajs's RequestQueue (kafkajs/src/network/requestQueue/index.js, 2.2.4) that is replaced here. */
interface RequestQueue {
  readonly pending: readonly unknown[];
  scheduleCheckPendingRequests: (this: RequestQueue) => void;
}

let done = false;

/**
 * Stops a timer of kafkajs that never ends. After every response RequestQueue.scheduleCheckPendingRequests sets a timer for
 * `throttledUntil - Date.now()`, which is about minus 55 years while the broker does not throttle: current Node prints a
 * TimeoutNegativeWarning, makes it 1 ms, and as the timer's callback schedules the next one, each connection wakes
 * a thousand times a second for ever (three idle connections: 4 % of a core; without the timer 0.3 %).
 * A timer is needed only while requests wait for a throttled broker; a request that comes to wait later schedules its own (push, line 167).
 */
export function scheduleOnlyWhilePending(): void {
  if (done) return;
  done = true;
  const require = createRequire(import.meta.url);
  const { prototype } = require('kafkajs/src/network/requestQueue/index.js') as { prototype: RequestQueue };
  const schedule = prototype.scheduleCheckPendingRequests;
  prototype.scheduleCheckPendingRequests = function (this: RequestQueue): void {
    if (this.pending.length > 0) schedule.call(this);
  };
}
