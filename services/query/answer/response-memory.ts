import type { FastifyReply } from 'fastify';
import { createTotals } from '../../../common/http/totals.ts';
import { whenClosed } from '../http/request.ts';
import type { Shares } from './shares.ts';
import { createQuerySlots, NoRoom } from './query-slots.ts';

/**
 * Smaller answers hold no memory here and are always sent: the buffers of a socket take about as much, and dashboards
 * keep working when the memory is used up.
 */
const HELD_FROM_BYTES = 256 * 1024;
const ROOM_BYTES = 192 * 1024 * 1024;
const READ_WITHIN_MS = 300_000;
const RETRY_SECONDS = 5;
const RESERVE_WAIT_MS = 2_000;
const RESERVE_QUEUE = 4;
/** The embedded engine returns pieces below 2 MiB after a second; the next large answer waits for that. */
const SETTLE_MS = 1_000;

export type ResponseMemory = ReturnType<typeof createResponseMemory>;

/**
 * Memory for large answers. One of more than SMALL_RESULT_BYTES (query.ts) reserves some while it is fetched and
 * rendered, and while it is converted to another form. It takes its size while it is compressed. One from
 * HELD_FROM_BYTES on holds the size that is sent until its caller has read it or left. While another key asks too, a
 * key may use half of the memory.
 * `readWithinMs`: a caller that takes longer for an answer from HELD_FROM_BYTES on is disconnected. Otherwise a caller
 * that reads a byte a minute would keep its memory for ever.
 */
export function createResponseMemory(shares: Shares, roomBytes = ROOM_BYTES, readWithinMs = READ_WITHIN_MS) {
  const used = createTotals();
  // four at a time took 1.5 GB
  const turns = createQuerySlots({ concurrency: 1, queue: RESERVE_QUEUE, waitMs: RESERVE_WAIT_MS, shares });

  /** Takes memory until the returned function is called. Throws `unavailable` if there is none left. */
  function take(answerBytes: number, owner: string): () => void {
    // an answer above all the memory counts as all of it
    const bytes = Math.min(answerBytes, roomBytes);
    const own = used.of(owner);
    // the only answer of a key may exceed its half
    const share = shares.hasOthers(owner) ? Math.max(roomBytes / 2, own === 0 ? bytes : 0) : roomBytes;
    if (used.all() + bytes > roomBytes || own + bytes > share)
      throw new NoRoom(owner, 'too many large answers wait for their callers to read them', RETRY_SECONDS);
    return used.take(owner, bytes);
  }

  return {
    /** bytes */
    used: used.all,
    take,
    /**
     * Reserves half of the memory while an answer is fetched and rendered, whatever its size: a key that
     * holds nothing else may have that much beside others. One answer at a time. Resolves to its release function.
     * Throws `unavailable` if there is none left.
     */
    async reserve(signal: AbortSignal, owner: string): Promise<() => void> {
      const endTurn = await turns.acquire(signal, owner).catch((error: unknown) => {
        throw error instanceof NoRoom
          ? new NoRoom(owner, 'too many large answers are being made', RETRY_SECONDS)
          : error;
      });
      try {
        const giveBack = take(roomBytes / 2, owner);
        return () => {
          giveBack();
          setTimeout(endTurn, SETTLE_MS).unref();
        };
      } catch (error) {
        endTurn();
        throw error;
      }
    },
    /** Records an answer that is about to be sent. Throws `unavailable` if unread answers take all the memory. */
    hold(reply: FastifyReply, bytes: number, owner: string): void {
      if (bytes < HELD_FROM_BYTES) return;
      const giveBack = take(bytes, owner);
      const sendAway = setTimeout(() => reply.raw.destroy(), readWithinMs);
      whenClosed(reply, () => {
        clearTimeout(sendAway);
        giveBack();
      });
    },
  };
}
