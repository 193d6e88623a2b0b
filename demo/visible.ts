/** What a running service says of the events that became visible since the first look, whoever sent them. */
export interface Visible {
  readonly events: number;
  /** age of what became visible last, the oldest of the sources, seconds; undefined = nothing yet */
  readonly freshnessSeconds: number | undefined;
}

const LOOK_TIMEOUT_MS = 800;

/**
 * Looks at the metrics of a service, one look after the other: a counter that seems smaller than before means a new
 * start. A look gives undefined where none answers there.
 */
export function createVisible(
  url: string,
  read: (url: string) => Promise<string | undefined> = readMetrics,
): () => Promise<Visible | undefined> {
  let before: number | undefined;
  let events = 0;
  let last: Promise<Visible | undefined> = Promise.resolve(undefined);
  return () => (last = last.then(look));

  async function look(): Promise<Visible | undefined> {
    const text = await read(url);
    if (text === undefined) return undefined;
    const total = valuesOf(text, 'sluice_ingest_events_total').reduce((sum, n) => sum + n, 0);
    // a service that was started anew counts from 0
    events += before === undefined ? 0 : total < before ? total : total - before;
    before = total;
    const ages = valuesOf(text, 'sluice_ingest_freshness_seconds');
    return { events, freshnessSeconds: ages.length === 0 ? undefined : Math.max(...ages) };
  }
}

/** Returns the values of a metric, one for each set of labels, in the text of /metrics. */
export function valuesOf(text: string, metric: string): number[] {
  return [...text.matchAll(new RegExp(`^${metric}(?:\\{[^}]*\\})? (\\S+)$`, 'gm'))].map(([, value]) => Number(value));
}

async function readMetrics(url: string): Promise<string | undefined> {
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(LOOK_TIMEOUT_MS) });
    return response.ok ? await response.text() : undefined;
  } catch {
    return undefined;
  }
}
