/** A message that the engine refuses, and its words. */
export interface Refused {
  readonly offset: number;
  readonly detail: string;
}

/**
 * Which of these the engine refuses by itself, by halves: one among n is found with about 2 log2(n) questions.
 * `refuses` asks about several at once and writes nothing: the engine's words, or undefined where it takes them. What is refused only together is not among the answers.
 */
export async function refusedOf<T>(items: readonly T[], refuses: (items: readonly T[]) => Promise<string | undefined>): Promise<{ readonly item: T; readonly detail: string }[]> {
  if (items.length === 0) return [];
  const detail = await refuses(items);
  if (detail === undefined) return [];
  if (items.length === 1) return [{ item: items[0]!, detail }];
  const half = items.length >> 1;
  return [...await refusedOf(items.slice(0, half), refuses), ...await refusedOf(items.slice(half), refuses)];
}
