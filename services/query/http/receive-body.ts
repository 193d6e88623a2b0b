import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { Transform, type Readable } from 'node:stream';
import { ApiError } from '../../../common/http/errors.ts';

/** A body of which nothing came for so long is no longer waited for. */
export const IDLE_BODY_MS = 15_000;
/**
 * A caller that was answered before it sent all may read the answer for so long. Closed at once, its socket would be
 * reset, and the answer lost.
 */
const LINGER_MS = 1_000;

/**
 * The body as it comes. `take` is asked for every piece, and ends the body where it throws; so does a pause of
 * `idleMs`, with 408.
 * What is announced costs nothing.
 */
export function receiveBody(
  payload: Readable,
  { take, idleMs = IDLE_BODY_MS }: { readonly take: (bytes: number) => void; readonly idleMs?: number },
): Readable {
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
    () => body.destroy(new ApiError('request_timeout', `nothing of the body came for ${idleMs / 1000} seconds`)),
    idleMs,
  );
  // whoever reads it may have gone: then nobody else is told
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

/** After the answer: a caller that still sends, or will never end its body, loses its socket. */
export function closeUnlessRead(request: IncomingMessage): void {
  if (request.complete) return;
  request.unpipe();
  request.resume();
  const linger = setTimeout(() => {
    if (!request.complete) request.destroy();
  }, LINGER_MS);
  request.once('close', () => clearTimeout(linger));
}

/** Ends a socket with these last words; one that the other side leaves half open is destroyed. */
export function endSocket(socket: Socket, words: string): void {
  const linger = setTimeout(() => socket.destroy(), LINGER_MS);
  socket.once('close', () => clearTimeout(linger));
  socket.end(words);
}
