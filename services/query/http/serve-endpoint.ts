import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Clock } from '../../../common/clock.ts';
import { invalidParameters } from '../../../common/http/errors.ts';
import type { Answers } from '../answer/answers.ts';
import type { Definitions } from '../definition/definition-files.ts';
import { assertMayCall, assertMaySee } from '../keys/key-ring.ts';
import { encodingFor, isModified, preferredFormat } from './negotiate.ts';
import { CONTENT_TYPES } from '../render/formats.ts';
import { ignoredParameters, readParams } from '../definition/params.ts';
import { JSON_TYPE, VARY, callerOf, keyOf, queryOf } from './request.ts';
import type { ResponseMemory } from '../answer/response-memory.ts';

/** `:endpoint` is an id or a name. */
export const ENDPOINT_PATHS = [
  '/api/endpoints/query/:endpoint',
  '/api/endpoints/query/name/:endpoint',
  '/api/endpoints/:endpoint',
  '/endpoints/query/:endpoint',
] as const;

export interface EndpointOptions {
  readonly definitions: () => Definitions;
  readonly answers: Answers;
  readonly clock: Clock;
  readonly responseMemory: ResponseMemory;
}

/** Returns the handler of ENDPOINT_PATHS. Throws ApiError, or CALLER_LEFT (request.ts). */
export function createServeEndpoint({ definitions, answers, clock, responseMemory }: EndpointOptions) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<unknown> => {
    const key = keyOf(request);
    const query = queryOf(request);
    const found = definitions().find((request.params as { endpoint: string }).endpoint);
    assertMayCall(key, found);
    request.outcome.endpoint = found.name;
    const ignored = ignoredParameters(found, query);
    if (ignored !== '') reply.header('x-ignored-parameters', ignored);
    assertMaySee(key, found, query.getAll(found.project?.parameter ?? ''));
    const read = readParams(found, query);
    if ('mistakes' in read) throw invalidParameters(read.mistakes);

    const format = preferredFormat(request.headers.accept, found);
    // The app closes a connection after two minutes without a byte (connectionTimeout in app.ts). A call may wait longer
    // for queries of other processes, so it has no such limit here. Our own queries end at their limits.
    const { socket } = request.raw;
    socket.setTimeout(0);
    const { answer: first, cache } = await answers
      .answer(found, read.params, () => callerOf(reply), key.id, format)
      .finally(() => socket.setTimeout(request.server.server.timeout));
    // without a cache the answer comes in the format; else it comes as JSON, on a miss too, and is converted here
    const isInForm = format === undefined || cache === 'none';
    const answer = isInForm ? first : await answers.inForm(first, format, found, key.id);
    const encoding = encodingFor(request, answer.bytes);
    const isNew = cache === 'none' || isModified(request.headers['if-none-match'], answer.etag);
    const body = isNew && encoding !== undefined ? await answers.encoded(answer, encoding, key.id) : answer.body;
    const length = typeof body === 'string' ? answer.bytes : body.length;
    if (isNew && request.method !== 'HEAD') responseMemory.hold(reply, length, key.id);

    request.outcome.cache = cache;
    reply.headers({
      'content-type': format === undefined ? JSON_TYPE : CONTENT_TYPES[format],
      'x-cache': cache,
      'cache-control':
        cache === 'none'
          ? 'private, no-store'
          : cache === 'stale'
            ? 'no-cache'
            : `private, max-age=${found.cacheSeconds}`,
    });
    // JSON keeps the header that callers rely on (docs/serving.md)
    if (format !== undefined) reply.header('vary', `${VARY}, Accept`);
    if (answer.truncated) reply.header('x-result-truncated', 'true');
    if (cache !== 'none')
      reply.headers({ age: Math.max(0, Math.floor((clock() - answer.fetchedAt) / 1000)), etag: answer.etag });
    if (!isNew) return await reply.code(304).send();
    if (encoding !== undefined) reply.header('content-encoding', encoding);
    return await reply.header('content-length', length).send(body);
  };
}
