/** What is not ready, in a few words that complete "<name> ..."; undefined = ready. May reject. */
export type Check = () => Promise<string | undefined>;

export interface Readiness {
  readonly status: 'ready' | 'not_ready';
  /** `ok`, or what is in the way */
  readonly checks: Readonly<Record<string, string>>;
}

/** What /readyz answers: 200 where the status is ready, else 503. */
export async function readinessOf(checks: Readonly<Record<string, Check>>): Promise<Readiness> {
  const results = await Promise.all(Object.entries(checks).map(async ([name, check]) => [name, (await check().catch(() => 'does not answer')) ?? 'ok'] as const));
  return { status: results.every(([, result]) => result === 'ok') ? 'ready' : 'not_ready', checks: Object.fromEntries(results) };
}
