import { isoMicros } from '../format.ts';
import type { Entry } from './events.ts';

/** A parameter of the page, not of the endpoint: how many entries at the end instant earlier pages have shown. */
export const SHOWN = 'shown';

/** Returns the entries of an answer without those at its end instant that earlier pages have shown. */
export function withoutShown(entries: readonly Entry[], end: string, shown: number): readonly Entry[] {
  if (shown === 0) return entries;
  const first = entries[0]?.timestamp;
  // the end is inclusive and ties have a fixed order, so entries of the end instant come first, and the first of them
  // were shown
  return first !== undefined && isoMicros(first) === end
    ? entries.slice(Math.min(shown, tiesAtStart(entries)))
    : entries;
}

function tiesAtStart(entries: readonly Entry[]): number {
  const different = entries.findIndex((e) => e.timestamp !== entries[0]?.timestamp);
  return different < 0 ? entries.length : different;
}

interface NextPage {
  readonly end: string;
  readonly shown: number;
  /** entries at one instant that no page can show: an answer holds at most `limit` of them */
  readonly isCut: boolean;
}

/**
 * Returns where the next page begins. Undefined if this was the last one. The next page ends at the instant of the
 * oldest entry, which others may share, and skips as many of that instant as were shown. If a whole answer has one
 * instant, the rest of that instant cannot be reached, and the next page begins below it.
 */
export function nextPage(entries: readonly Entry[], limit: number): NextPage | undefined {
  const oldest = entries.at(-1);
  if (oldest === undefined || entries.length < limit) return undefined;
  const ties = entries.filter((e) => e.timestamp === oldest.timestamp).length;
  if (ties === entries.length) return { end: isoMicros(oldest.timestamp - 1), shown: 0, isCut: true };
  return { end: isoMicros(oldest.timestamp), shown: ties, isCut: false };
}
