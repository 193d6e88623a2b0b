import { createRequire } from 'node:module';
import { decodeFetchResponse, type FetchOptions } from './fetch-response.ts';

// The two places where kafkajs 2.2.4 (pinned; no longer developed) is not used as it is. Nothing in node_modules is
// changed.

const require = createRequire(import.meta.url);

/** The part of kafkajs's RequestQueue (src/network/requestQueue/index.js) that is replaced here. */
interface RequestQueue {
  readonly pending: readonly unknown[];
  scheduleCheckPendingRequests: (this: RequestQueue) => void;
}

let timersStopped = false;

/**
 * Stops a timer of kafkajs that never ends. After every response RequestQueue.scheduleCheckPendingRequests sets a timer
 * for `throttledUntil - Date.now()`, which is about minus 55 years while the broker does not throttle: current Node
 * prints a TimeoutNegativeWarning, makes it 1 ms, and as the timer's callback schedules the next one, each connection
 * wakes a thousand times a second for ever (three idle connections: 4 % of a core; without the timer 0.3 %). A timer is
 * needed only while requests wait for a throttled broker; a request that comes to wait later schedules its own (push,
 * line 167).
 */
export function scheduleOnlyWhilePending(): void {
  if (timersStopped) return;
  timersStopped = true;
  const { prototype } = require('kafkajs/src/network/requestQueue/index.js') as { prototype: RequestQueue };
  const schedule = prototype.scheduleCheckPendingRequests;
  prototype.scheduleCheckPendingRequests = function (this: RequestQueue): void {
    if (this.pending.length > 0) schedule.call(this);
  };
}

/**
 * kafkajs's definition of the Fetch request (src/protocol/requests/fetch/index.js): by version, from the parameters of
 * a request to how it is written and its response read.
 */
interface FetchDefinition {
  protocol: (version: { readonly version: number }) => (parameters: FetchParameters) => FetchProtocol;
}

interface FetchParameters {
  readonly topics: readonly {
    readonly topic: string;
    readonly partitions: readonly { readonly partition: number; readonly fetchOffset: string }[];
  }[];
}

interface FetchProtocol {
  readonly response: {
    readonly decode: (raw: Buffer) => Promise<unknown>;
    readonly parse: (decoded: unknown) => Promise<unknown>;
  };
}

/** Fetch version 11 is the newest that kafkajs has, and what it uses with Kafka 2.3 and later. */
const VERSION = 11;

let fetchOptions: Omit<FetchOptions, 'fetchOffset'> | undefined;

/**
 * Has fetched records read by our own reader; record-batch.ts says why. One set of options per process: the definition
 * is one object.
 */
export function readFetchesWith(options: Omit<FetchOptions, 'fetchOffset'>): void {
  const first = fetchOptions === undefined;
  fetchOptions = options;
  if (!first) return;
  const definition = require('kafkajs/src/protocol/requests/fetch/index.js') as FetchDefinition;
  const original = definition.protocol;
  definition.protocol =
    ({ version }) =>
    (parameters) => {
      const protocol = original({ version })(parameters);
      if (version !== VERSION) return protocol;
      const positions = new Map(
        parameters.topics.flatMap(({ topic, partitions }) =>
          partitions.map(({ partition, fetchOffset }) => [`${topic}:${partition}`, Number(fetchOffset)]),
        ),
      );
      const fetchOffset = (topic: string, partition: number): number => positions.get(`${topic}:${partition}`) ?? 0;
      const decode = async (raw: Buffer): Promise<unknown> =>
        (await decodeFetchResponse(raw, { ...options, ...fetchOptions, fetchOffset })) ?? protocol.response.decode(raw);
      return { ...protocol, response: { ...protocol.response, decode } };
    };
}
