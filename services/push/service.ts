import { setImmediate as turn } from 'node:timers/promises';
import type { Clock } from '../../common/clock.ts';
import type { Settings } from '../../common/config/settings.ts';
import { createSharedBudget } from '../../common/http/budget.ts';
import { ApiError, invalidParameters, type EventMistake } from '../../common/http/errors.ts';
import { ERROR, jsonAnswer, objectSchema, optionalParameter, sharedAnswers } from '../../common/http/operation.ts';
import type { Operation, Route, RouteRequest } from '../../common/http/route.ts';
import {
  createAcknowledgedProducer,
  type AcknowledgedProducer,
  type NotAcknowledged,
  type OutgoingMessage,
} from '../../common/kafka/acknowledged-producer.ts';
import type { KafkaClient } from '../../common/kafka/client.ts';
import type { Component } from '../../common/lifecycle/run.ts';
import type { Logger } from '../../common/logger.ts';
import type { Registry } from '../../common/metrics.ts';
import { findSource, sources, type KnownSource } from '../../common/sources.ts';
import { decompressBody, eventTexts } from './body.ts';
import { mayPush, namesAnother, readEvent } from './event.ts';
import { createPushMetrics } from './metrics.ts';
import { createFairQueue } from './fair-queue.ts';

interface PushOptions {
  /** resolves when a broker is available; until then callers get 503 */
  readonly kafka: Promise<KafkaClient>;
  readonly settings: Pick<Settings, 'KAFKA_TOPICS' | 'KAFKA_RAW_AVRO_TOPICS' | 'MAX_EVENT_BYTES' | 'PUSH_BUFFER_BYTES'>;
  readonly logger: Logger;
  readonly registry: Registry;
  readonly clock: Clock;
  /** how long a request waits for Kafka's acknowledgement; 10 s by default */
  readonly acknowledgeMs?: number | undefined;
}

export interface Push extends Component {
  readonly routes: readonly Route[];
}

const PATHS = ['/api/logs', '/logs', '/api/events'] as const;
/** as sent, and again when decompressed */
const BODY_LIMIT = 10 * 1024 * 1024;
const MAX_EVENTS = 100_000;
/** Memory of an event beside its bytes. */
const EVENT_BYTES = 256;
/** Memory of a piece of a body beside its bytes, which matters if a caller sends every byte as a piece of its own. */
const PIECE_BYTES = 512;
const MAX_MISTAKES = 100;
/** The event loop serves other requests after this many characters of a body. An event counts EVENT_BYTES more. */
const TURN_AFTER = 256 * 1024;
const RETRY_FULL_SECONDS = 1;
const RETRY_KAFKA_SECONDS = 5;

/**
 * Starts HTTP push, for producers without a Kafka client. A request is answered `Logged!` once Kafka has acknowledged
 * all its events. After 408, 429, 503 or no answer the caller sends it again, so an event may arrive twice but is never
 * lost. PUSH_BUFFER_BYTES bounds the memory, and no key takes more than half of it.
 */
export function startPush({ kafka, settings, logger, registry, clock, acknowledgeMs }: PushOptions): Push {
  const memory = createSharedBudget(settings.PUSH_BUFFER_BYTES, bufferFull);
  const metrics = createPushMetrics(registry, memory.used);
  let producer: AcknowledgedProducer | undefined;
  let stopped = false;
  kafka.then(
    (client) => (producer = createAcknowledgedProducer(client, logger, acknowledgeMs)),
    () => undefined, // the owner of the promise reports the error
  );

  // Bodies are decompressed and parsed one at a time. The event loop does this work anyway, and the uncounted memory is
  // then needed only once.
  const inTurn = createFairQueue();

  /** Decompresses and reads a body, and takes the memory for it until `release` is called. Throws ApiError. */
  async function receive(
    { signal, body, headers, key }: RouteRequest,
    source: KnownSource,
    timestamp: number,
  ): Promise<{ readonly messages: OutgoingMessage[]; readonly release: () => void }> {
    if (signal.aborted) throw new ApiError('invalid_request', 'the caller has left');
    const decompressed = await decompressBody(body, headers['content-encoding'], BODY_LIMIT);
    metrics.bytes.inc({ source: source.name }, decompressed.length);
    // for the events, which are copies: a body that is not compressed is counted as such too, until the answer
    const releaseBytes = memory.take(key.id, decompressed.length);
    try {
      const messages = await readEvents(decompressed, source, key.projects, settings.MAX_EVENT_BYTES, timestamp);
      const releaseEvents = memory.take(key.id, messages.length * EVENT_BYTES);
      return {
        messages,
        release: () => {
          releaseBytes();
          releaseEvents();
        },
      };
    } catch (error) {
      releaseBytes();
      throw error;
    }
  }

  const handle: Route['handle'] = async (request) => {
    const source = sourceOf(request);
    const topic = settings.KAFKA_TOPICS[source.name];
    // ingest would make every JSON event of it a dead letter
    if (settings.KAFKA_RAW_AVRO_TOPICS.includes(topic))
      throw new ApiError('conflict', `the topic of ${source.name} holds raw Avro, and push sends JSON`);
    if (producer === undefined || stopped)
      throw new ApiError('unavailable', stopped ? 'the service is stopping' : 'Kafka is not available yet', {
        retryAfterSeconds: RETRY_KAFKA_SECONDS,
      });
    const timestamp = clock();
    const { messages, release } = await inTurn(request.key.id, () => receive(request, source, timestamp));
    const readAt = performance.now();
    const { acknowledged, finished } = producer.send(topic, messages);
    void finished.then(release);
    await acknowledged.catch((error: NotAcknowledged) => {
      throw refusalOf(error);
    });
    metrics.acknowledgeSeconds.observe((performance.now() - readAt) / 1000);
    metrics.events.inc({ source: source.name }, messages.length);
    return { status: 200, json: { message: 'Logged!' } };
  };
  const answered: NonNullable<Route['answered']> = (request, status) => {
    const [source, ...others] = sourcesOf(request);
    metrics.requests.inc({ source: (others.length === 0 && source?.name) || 'unknown', status });
  };
  return {
    name: 'push',
    routes: PATHS.map((path) => ({
      method: 'POST',
      path,
      scope: 'ingest',
      bodyLimit: BODY_LIMIT,
      admit: (bytes, key) => memory.take(key.id, bytes + PIECE_BYTES),
      answered,
      handle,
      ...(path === '/api/logs' && { documented: OPERATION }),
    })),
    async stop() {
      stopped = true;
      await producer?.stop();
    },
  };
}

/** Returns the sources that the request names in three ways; undefined among them for an unknown name. */
function sourcesOf({ query, headers }: Pick<RouteRequest, 'query' | 'headers'>): Set<KnownSource | undefined> {
  const given = [
    ...query.getAll('source_name'),
    ...query.getAll('collection_name'),
    String(headers['x-collection'] ?? ''),
  ];
  return new Set(given.filter((name) => name !== '').map(findSource));
}

/** Returns the only source that the request names. Throws ApiError if there is none, or if there are several. */
function sourceOf(request: RouteRequest): KnownSource {
  const found = sourcesOf(request);
  if (found.size === 0)
    throw invalidParameters([
      {
        parameter: 'source_name',
        message: `is required: one of ${sources.map((s) => s.name).join(', ')}, or an alias`,
      },
    ]);
  const [source] = found;
  if (found.has(undefined) || source === undefined) throw new ApiError('not_found', 'there is no source of this name');
  if (found.size > 1) throw invalidParameters([{ parameter: 'source_name', message: 'names several sources' }]);
  return source;
}

/**
 * Returns the messages of a body. Throws ApiError that lists every mistake: 403 if a limited key pushes for another
 * project, 422 if an event cannot be stored.
 */
async function readEvents(
  body: Buffer,
  source: KnownSource,
  projects: readonly string[],
  maxEventBytes: number,
  timestamp: number,
): Promise<OutgoingMessage[]> {
  const messages: OutgoingMessage[] = [];
  const mistakes: EventMistake[] = [];
  const forbidden: EventMistake[] = [];
  let index = 0;
  let untilTurn = TURN_AFTER;
  for (const text of eventTexts(body)) {
    if (index === MAX_EVENTS) throw new ApiError('payload_too_large', `the body has more than ${MAX_EVENTS} events`);
    untilTurn -= text.length + EVENT_BYTES;
    if (untilTurn < 0) {
      untilTurn = TURN_AFTER;
      await turn();
    }
    const event = readEvent(text, source, maxEventBytes);
    if ('mistake' in event) mistakes.push({ index, message: event.mistake });
    else if (!mayPush(projects, event))
      forbidden.push({ index, message: `the key may not push for this ${source.project}` });
    else if (namesAnother(projects, event))
      mistakes.push({ index, message: "has a url whose host contains a reference that is none of the key's projects" });
    else messages.push({ key: event.project, value: event.value, timestamp });
    index++;
  }
  if (forbidden.length > 0)
    throw new ApiError('forbidden', 'the key is limited to other projects; nothing of the request was taken', {
      mistakes: forbidden.slice(0, MAX_MISTAKES),
    });
  if (mistakes.length > 0)
    throw new ApiError(
      'invalid_events',
      `${mistakes.length} of ${index} events cannot be stored; nothing of the request was taken`,
      { mistakes: mistakes.slice(0, MAX_MISTAKES) },
    );
  return messages;
}

function bufferFull(): ApiError {
  return new ApiError(
    'rate_limited',
    'the push buffer is full: Kafka has not acknowledged earlier events of this key',
    { retryAfterSeconds: RETRY_FULL_SECONDS },
  );
}

function refusalOf(error: NotAcknowledged): ApiError {
  if (error.reason === 'too_large')
    return new ApiError('payload_too_large', "an event is larger than Kafka's topic takes", { cause: error });
  return new ApiError('unavailable', 'Kafka has not acknowledged the events: send them again', {
    retryAfterSeconds: RETRY_KAFKA_SECONDS,
    cause: error,
  });
}

const anError = (description: string): object => jsonAnswer(description, ERROR);

const OPERATION: Operation = {
  operationId: 'push',
  summary: 'Pushes events of one source. The key needs the scope ingest',
  description: `Answers once Kafka has acknowledged all events. After 408, 429, 503 or no answer, send the whole request again: an event may then arrive twice. After another 4xx, correct the request first. Also at ${PATHS.slice(1).join(' and ')}. The body: a JSON list of events, {"batch": [...]}, one event, or one per line; up to 10 MiB, also decompressed (gzip, deflate, br, zstd).`,
  parameters: [
    optionalParameter('source_name', 'query', `${sources.map((s) => s.name).join(', ')}, or the alias of one`),
    optionalParameter('collection_name', 'query', 'the same'),
    optionalParameter('x-collection', 'header', 'the same'),
  ],
  requestBody: {
    required: true,
    content: { 'application/json': { schema: {} }, 'application/x-ndjson': { schema: { type: 'string' } } },
  },
  responses: {
    200: jsonAnswer('Kafka has all events', objectSchema({ message: { const: 'Logged!' } })),
    ...sharedAnswers(400, 401),
    403: anError('The key may not push, or may not push for the projects of these events'),
    404: anError('No such source'),
    408: anError('No byte of the body arrived for 15 seconds, or the request took longer than a minute'),
    409: anError('The topic of the source holds raw Avro (KAFKA_RAW_AVRO_TOPICS)'),
    413: anError("More than 10 MiB, or than 100,000 events, or an event is larger than the topic's max.message.bytes"),
    415: anError('Another Content-Encoding'),
    422: anError('Some events cannot be stored; `errors` lists them by index. Nothing of the request was taken'),
    429: anError('Too many events wait for Kafka, or too many requests; see retry-after'),
    503: anError('Kafka has not acknowledged; see retry-after'),
  },
};
