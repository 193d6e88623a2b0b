import type { IncomingMessage } from 'node:http';
import { Transform, type Duplex, type Readable } from 'node:stream';
import { ApiError } from '../../../common/http/errors.ts';

/** A body that pauses for this long is given up. */
const IDLE_BODY_MS = 15_000;
/**
 * How long a caller that got its answer before it sent its whole body may read the answer. If its socket were closed at
 * once, it would be reset, and the answer lost.
 */
const LINGER_MS = 1_000;

/**
 * Returns the body as it arrives. `take` is called for every piece and ends the body by throwing. A pause of
 * IDLE_BODY_MS ends it with 408. Announced bytes cost nothing.
 */
export function receiveBody(payload: Readable, take: (bytes: number) => void): Readable {
  const body = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      idle.refresh();
      try {
        take(chunk.length);
      } catch (error) {
        done(error as Error);
        return;
      }
      done(null, chunk);
    },
  });
  const idle = setTimeout(
    () =>
      body.destroy(new ApiError('request_timeout', `no byte of the body arrived for ${IDLE_BODY_MS / 1000} seconds`)),
    IDLE_BODY_MS,
  );
  // the reader may have gone; then nobody needs the error
  body.on('error', () => undefined);
  body.once('close', () => {
    clearTimeout(idle);
    payload.unpipe(body);
  });
  payload.once('end', () => clearTimeout(idle));
  payload.once('error', (error) => body.destroy(error));
  payload.once('close', () => {
    if (!payload.readableEnded) body.destroy(new ApiError('invalid_request', 'the caller has left'));
  });
  return payload.pipe(body);
}

/** After the answer, closes the socket of a caller that still sends, or never ends its body. */
export function closeUnlessRead(request: IncomingMessage): void {
  if (request.complete) return;
  request.unpipe();
  request.resume();
  const linger = setTimeout(() => {
    if (!request.complete) request.destroy();
  }, LINGER_MS);
  request.once('close', () => clearTimeout(linger));
}

/** Ends a socket with a last message, and destroys it if the other side leaves it half open. */
export function endSocket(socket: Duplex, words: string): void {
  const linger = setTimeout(() => socket.destroy(), LINGER_MS);
  socket.once('close', () => clearTimeout(linger));
  socket.end(words);
}
