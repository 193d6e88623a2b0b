import { randomUUID } from 'node:crypto';
import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify';
import { ClickHouseError } from '../../../common/clickhouse/errors.ts';
import { UsageError } from '../../../common/errors.ts';
import { ApiError, envelope } from '../../../common/http/errors.ts';
import type { Logger } from '../../../common/logger.ts';
import { apiErrorOf } from '../answer/clickhouse-errors.ts';
import type { QueryMetrics } from '../metrics.ts';
import { sendCompressed } from './negotiate.ts';
import { endSocket } from './receive-body.ts';
import { CALLER_LEFT, CORS, JSON_TYPE, SAFE } from './request.ts';

/** nginx's status for a request whose caller left, used in the metrics. */
const STATUS_CALLER_LEFT = 499;

/** The log line of these refusals names the caller's address. */
const REFUSALS = new Set([401, 403, 429]);

/**
 * Answers a request with the thrown error and logs it: mistakes of the caller at info, failures of a dependency at
 * warn, unexpected errors at error.
 */
export function createSendError({ logger, metrics }: { readonly logger: Logger; readonly metrics: QueryMetrics }) {
  return (thrown: unknown, request: FastifyRequest, reply: FastifyReply): Promise<unknown> | undefined => {
    if (thrown === CALLER_LEFT) {
      metrics.requests.inc({ endpoint: request.outcome.endpoint, status: STATUS_CALLER_LEFT, cache: '' });
      logger.debug(
        { request_id: request.id, endpoint: request.outcome.endpoint, key_id: request.key?.id },
        'caller_left',
      );
      // no onResponse hook follows, so nothing counts it twice: the response never finishes
      reply.hijack();
      return undefined;
    }
    const error = errorOf(thrown);
    const fields = {
      request_id: request.id,
      endpoint: request.outcome.endpoint,
      key_id: request.key?.id,
      code: error.code,
      ...(REFUSALS.has(error.status) && { address: request.ip }),
    };
    if (error.status === 500) logger.error({ ...fields, ...reasonOf(error.cause ?? error) }, 'request_failed');
    else if (error.status > 500) logger.warn({ ...fields, ...reasonOf(error.cause) }, 'request_failed');
    else logger.info({ ...fields, status: error.status }, 'request_refused');
    if (error.retryAfterSeconds !== undefined) reply.header('retry-after', error.retryAfterSeconds);
    if (error.allow !== undefined) reply.header('allow', error.allow);
    if (error.status === 401) reply.header('www-authenticate', 'Bearer');
    reply.code(error.status).headers({ 'content-type': JSON_TYPE, 'cache-control': 'private, no-store' });
    return sendCompressed(reply, envelope(error, request.id));
  };
}

/**
 * Returns fields for the log. ClickHouse's text after "In scope" repeats the statement with its parameters and is left
 * out.
 */
function reasonOf(cause: unknown): Record<string, unknown> {
  if (cause instanceof ClickHouseError)
    return {
      clickhouse_code: cause.code,
      reason: cause.codeName,
      ...(cause.kind !== 'retry' && { said: cause.message.replace(/:? In scope .*/s, '').slice(0, 300) }),
    };
  return cause === undefined ? {} : { err: cause };
}

/** Returns the error that the caller gets. Maps errors of Fastify itself, of ClickHouse, and unexpected ones. */
export function errorOf(thrown: unknown): ApiError {
  if (thrown instanceof ApiError) return thrown;
  const error = thrown as Partial<FastifyError> & Error;
  if (error instanceof UsageError) return new ApiError('invalid_request', error.message, { cause: error });
  if (error.statusCode === 413) return new ApiError('payload_too_large', 'the body is too large', { cause: error });
  if (error.statusCode !== undefined && error.statusCode >= 400 && error.statusCode < 500)
    return new ApiError('invalid_request', 'the request cannot be read', { cause: error });
  return apiErrorOf(error, { parameters: [] });
}

/** `rawPacket`: a Buffer, which begins with the request line unless the connection had requests before */
type BrokenRequest = Error & { readonly code?: string; readonly rawPacket?: unknown };

/** Answers a request that Node cannot read. There is only a socket yet, no request object. */
export function answerBrokenRequest(error: BrokenRequest, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  answerSocket(socket, refusalOf(error));
}

function refusalOf({ code, rawPacket }: BrokenRequest): ApiError {
  if (code === 'HPE_HEADER_OVERFLOW')
    return new ApiError('too_large', 'the request line and headers are too large', { status: 431 });
  if (code === 'HPE_INVALID_URL')
    return new ApiError('invalid_request', 'the address is not valid: characters beyond ASCII must be percent-encoded');
  // a slow network, not a wrong request: the caller may send it again
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT')
    return new ApiError('request_timeout', 'the request took longer than a minute to arrive');
  // anything else than HTTP, such as TLS, begins with a wrong method too
  if (code === 'HPE_INVALID_METHOD' && /^[\w-]+ \S+ HTTP\/1/.test(String(rawPacket))) return unknownMethod();
  return new ApiError('invalid_request', 'the request cannot be read');
}

/** Answers CONNECT, for which Node hands over the bare socket. */
export function answerConnect(_request: unknown, socket: Duplex): void {
  // Node no longer listens: without this, a reset would end the process
  socket.on('error', () => undefined).resume();
  answerSocket(socket, unknownMethod());
}

function unknownMethod(): ApiError {
  return new ApiError('method_not_allowed', 'no path accepts this method', {
    allow: 'GET, HEAD, POST, DELETE, OPTIONS',
  });
}

function answerSocket(socket: Duplex, answer: ApiError): void {
  const requestId = randomUUID();
  const body = envelope(answer, requestId);
  const headers = {
    ...CORS,
    ...SAFE,
    ...(answer.allow !== undefined && { allow: answer.allow }),
    'content-type': JSON_TYPE,
    'content-length': Buffer.byteLength(body),
    'cache-control': 'private, no-store',
    'x-request-id': requestId,
    connection: 'close',
  };
  endSocket(
    socket,
    `HTTP/1.1 ${answer.status} ${STATUS_CODES[answer.status]}\r\n${Object.entries(headers)
      .map(([k, v]) => `${k}: ${v}\r\n`)
      .join('')}\r\n${body}`,
  );
}
