/** What is not ready, in a few words that complete "<name> ..."; undefined = ready; a note = ready, with something to say. May reject. */
export type Check = () => Promise<string | { readonly note: string } | undefined>;

export interface Readiness {
  readonly status: 'ready' | 'not_ready';
  /** `ok`, `ok, <note>`, or what is in the way */
  readonly checks: Readonly<Record<string, string>>;
}

/** What /readyz answers: 200 where the status is ready, else 503. */
export async function readinessOf(checks: Readonly<Record<string, Check>>): Promise<Readiness> {
  const results = await Promise.all(Object.entries(checks).map(async ([name, check]) => [name, await check().catch(() => 'does not answer')] as const));
  const words = results.map(([name, result]) => [name, result === undefined ? 'ok' : typeof result === 'string' ? result : `ok, ${result.note}`]);
  return { status: results.every(([, result]) => typeof result !== 'string') ? 'ready' : 'not_ready', checks: Object.fromEntries(words) };
}
