import { once } from 'node:events';
import http, { type IncomingMessage } from 'node:http';
import https from 'node:https';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Settings } from '../common/config/settings.ts';
import { addressOf } from '../common/http/address.ts';
import { trusting } from '../common/tls.ts';

/** What a running service says of the events that became visible since the first look, whoever sent them. */
export interface Visible {
  readonly events: number;
  /** age of what became visible last, the oldest of the sources, seconds; undefined = nothing yet */
  readonly freshnessSeconds: number | undefined;
}

const EVENTS = 'sluice_ingest_events_total';
const LOOK_TIMEOUT_MS = 800;
const LOOK_AGAIN_MS = 100;

/**
 * Looks at the metrics of a service, which `read` gets, one look after the other: a counter that seems smaller than
 * before means a new start. A look gives undefined where none answers there, or none with ingest.
 */
export function createVisible(read: () => Promise<string | undefined>): () => Promise<Visible | undefined> {
  let before: number | undefined;
  let events = 0;
  let last: Promise<Visible | undefined> = Promise.resolve(undefined);
  return () => (last = last.then(look));

  async function look(): Promise<Visible | undefined> {
    const text = await read();
    // the type of a counter is there before its first event
    if (text?.includes(`# TYPE ${EVENTS} `) !== true) return undefined;
    const total = valuesOf(text, EVENTS).reduce((sum, n) => sum + n, 0);
    // a service that was started anew counts from 0
    events += before === undefined ? 0 : total < before ? total : total - before;
    before = total;
    const ages = valuesOf(text, 'sluice_ingest_freshness_seconds');
    return { events, freshnessSeconds: ages.length === 0 ? undefined : Math.max(...ages) };
  }
}

/** Looks again until that many events are visible, or for so long: ingest is a second or two behind. */
export async function lookUntil(
  look: () => Promise<Visible | undefined>,
  events: number,
  limitMs: number,
): Promise<Visible | undefined> {
  const until = performance.now() + limitMs;
  for (;;) {
    const seen = await look();
    if (seen === undefined || seen.events >= events || performance.now() >= until) return seen;
    await sleep(LOOK_AGAIN_MS);
  }
}

/** Returns the values of a metric, one for each set of labels, in the text of /metrics. */
export function valuesOf(text: string, metric: string): number[] {
  return [...text.matchAll(new RegExp(`^${metric}(?:\\{[^}]*\\})? (\\S+)$`, 'gm'))].map(([, value]) => Number(value));
}

/** Returns what reads /metrics of the service that has these settings; undefined where none answers. */
export function metricsOf({
  HOST,
  PORT,
  METRICS_PORT,
  HTTPS_CERT,
}: Pick<Settings, 'HOST' | 'PORT' | 'METRICS_PORT' | 'HTTPS_CERT'>): () => Promise<string | undefined> {
  const secure = METRICS_PORT === undefined && HTTPS_CERT !== undefined;
  const url = `${addressOf(HOST, METRICS_PORT ?? PORT, secure ? 'https' : 'http')}/metrics`;
  return async () => {
    try {
      const options = { signal: AbortSignal.timeout(LOOK_TIMEOUT_MS), ...(secure && trusting(HTTPS_CERT)) };
      const [response] = (await once((secure ? https : http).get(url, options), 'response')) as [IncomingMessage];
      const body = await text(response);
      return response.statusCode === 200 ? body : undefined;
    } catch {
      return undefined;
    }
  };
}
