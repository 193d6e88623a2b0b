import { Gauge, type Registry } from 'prom-client';
import { within } from './lifecycle/within.ts';

/**
 * Resolves to what is not ready, in a few words that complete "<name> ...". Undefined means ready, and a note means
 * ready with something to say. May reject.
 */
export type Check = () => Promise<string | { readonly note: string } | undefined>;

/** by name */
export type Checks = Readonly<Record<string, Check>>;

interface Readiness {
  readonly status: 'ready' | 'not_ready';
  /** `ok`, `ok, <note>`, or the problem */
  readonly checks: Readonly<Record<string, string>>;
}

/** Prometheus gives a scrape ten seconds by default. */
const CHECK_LIMIT_MS = 2_000;
const SHARED_MS = 1_000;

/** The last evaluation of each check, and until when it may be shared. */
const evaluations = new WeakMap<Check, { readonly answer: ReturnType<Check>; until: number }>();

/**
 * Resolves to what a check says, within two seconds. Callers share an evaluation until the check has ended, and for a
 * second from its beginning: probes need no key, and a check may need a session of ClickHouse.
 */
function evaluate(check: Check): ReturnType<Check> {
  const last = evaluations.get(check);
  if (last !== undefined && performance.now() < last.until) return last.answer;
  const until = performance.now() + SHARED_MS;
  const checked = check();
  const answer = within(CHECK_LIMIT_MS, checked, 'takes too long').catch(() => 'does not answer');
  const evaluation = { answer, until: Number.POSITIVE_INFINITY };
  evaluations.set(check, evaluation);
  void checked.catch(() => undefined).then(() => (evaluation.until = until));
  return answer;
}

/** Returns what /readyz answers: 200 if the status is ready, else 503. */
export async function readinessOf(checks: Checks): Promise<Readiness> {
  const results = await Promise.all(
    Object.entries(checks).map(async ([name, check]) => [name, await evaluate(check)] as const),
  );
  const words = results.map(([name, result]) => [
    name,
    result === undefined ? 'ok' : typeof result === 'string' ? result : `ok, ${result.note}`,
  ]);
  return {
    status: results.every(([, result]) => typeof result !== 'string') ? 'ready' : 'not_ready',
    checks: Object.fromEntries(words),
  };
}

/** Makes each check a series that is evaluated at every scrape, so alerts see what /readyz says. */
export function watchReadiness(registry: Registry, checks: Checks): void {
  const ready = new Gauge({
    name: 'sluice_ready',
    help: '1 while a check of /readyz passes, 0 while it fails or takes longer than two seconds',
    labelNames: ['check'],
    registers: [],
    async collect() {
      await Promise.all(
        Object.entries(checks).map(async ([name, check]) => {
          this.set({ check: name }, typeof (await evaluate(check)) === 'string' ? 0 : 1);
        }),
      );
    },
  });
  registry.registerMetric(ready);
}
