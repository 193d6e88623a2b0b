import { hash, randomBytes, timingSafeEqual } from 'node:crypto';
import { ApiError } from '../../common/http/errors.ts';

const VALID_MS = 600_000;

/**
 * Makes a token that signs in once, within ten minutes after it was issued. It is part of the printed address, where
 * the key must not be.
 */
export function createOneTimeToken() {
  const text = randomBytes(32).toString('base64url');
  const digest = (of: string): Buffer => hash('sha256', of, 'buffer');
  const expected = digest(text);
  let isUsed = false;
  let issuedAt = Number.NEGATIVE_INFINITY;
  return {
    issue(now: number): string {
      issuedAt = now;
      return text;
    },
    /** Throws ApiError unless the token is right, unused and not expired. */
    use(given: string, now: number): void {
      if (isUsed || now - issuedAt > VALID_MS || !timingSafeEqual(digest(given), expected)) {
        throw new ApiError(
          'unauthorized',
          'The sign-in link is used up or older than ten minutes. Sign in with a key.',
        );
      }
      isUsed = true;
    },
  };
}
