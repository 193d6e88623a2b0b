import type { FastifyReply } from 'fastify';
import { createBudget } from '../../common/http/budget.ts';
import { ApiError } from '../../common/http/errors.ts';
import { whenClosed } from './request.ts';

/** Large answers on their way to callers: of each caller its own, in memory until it has read it or has left. */
export interface Sending {
  /** Notes an answer that is about to be sent. Throws `unavailable` where others, not read yet, take all the room there is. */
  hold(reply: FastifyReply, bytes: number): void;
  /** bytes */
  readonly used: () => number;
}

/** Smaller answers are always sent: a socket's own buffers take about as much, and dashboards live on when there is no more room. */
const LARGE_BYTES = 256 * 1024;
const ROOM_BYTES = 256 * 1024 * 1024;
const READ_WITHIN_MS = 300_000;
const RETRY_SECONDS = 5;

/** `readWithinMs`: who takes longer for a large answer is sent away: else one that reads a byte a minute would keep its room for ever. */
export function createSending({ roomBytes = ROOM_BYTES, readWithinMs = READ_WITHIN_MS }: { roomBytes?: number; readWithinMs?: number } = {}): Sending {
  const room = createBudget(roomBytes, () => new ApiError('unavailable', 'too many large answers wait for their callers to read them', { retryAfterSeconds: RETRY_SECONDS }));
  return {
    used: room.used,
    hold(reply, bytes) {
      if (bytes < LARGE_BYTES) return;
      // one that is larger than all the room is sent while nothing else is held
      const giveBack = room.take(Math.min(bytes, roomBytes));
      const sendAway = setTimeout(() => reply.raw.destroy(), readWithinMs);
      whenClosed(reply, () => {
        clearTimeout(sendAway);
        giveBack();
      });
    },
  };
}
