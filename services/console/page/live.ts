import { useEffect, useRef, useState } from 'preact/hooks';
import { HISTORY_STEPS, type Series, type Status } from '../wire.ts';
import { CallError, callJson } from './api.ts';

/** Between the end of one request and the next, milliseconds. */
const EVERY_MS = 1_000;
const AFTER_FAILURE_MS = 1_500;
/** A service that takes longer is unavailable: it may be suspended. */
const TIMEOUT_MS = 10_000;
/** Steps that are requested again, because late batches may have changed them. */
const AGAIN_STEPS = 6;
/** The whole hour is requested again this often, as often as the service reads it again. */
const WHOLE_EVERY_MS = 60_000;

interface Trouble {
  /** unix milliseconds */
  readonly since: number;
  /** what the service says; undefined if it does not answer at all */
  readonly refusal: string | undefined;
}

/** The state of the page's connection to the service. */
export interface Connection {
  /** undefined if the service answers */
  readonly trouble: Trouble | undefined;
  /** a message for the reader after a reconnection; undefined if there is none */
  readonly notice: string | undefined;
}

interface Live {
  readonly status: Status | undefined;
  readonly connection: Connection;
  readonly dismiss: () => void;
}

/**
 * Loads the state of the system every second while the tab is visible. `onRefused` is called when the key is no longer
 * valid.
 */
export function useLive(isOn: boolean, onRefused: (message: string) => void): Live {
  const [status, setStatus] = useState<Status | undefined>(undefined);
  const [connection, setConnection] = useState<Connection>({ trouble: undefined, notice: undefined });
  const refused = useRef(onRefused);
  refused.current = onRefused;

  useEffect(() => {
    setStatus(undefined);
    if (!isOn) return undefined;
    const stop = new AbortController();
    let known: Status | undefined;
    let wholeAt = 0;
    let trouble: Trouble | undefined;
    /** 0 while a request is in flight */
    let timer = 0;
    /** the service asks to be left alone until then, by performance.now() */
    let notBefore = 0;

    async function look(): Promise<void> {
      timer = 0;
      // a hidden tab costs nothing
      if (document.hidden) return again(EVERY_MS);
      try {
        const since =
          known === undefined || performance.now() - wholeAt >= WHOLE_EVERY_MS
            ? ''
            : `?since=${known.from + (known.steps - AGAIN_STEPS) * known.step_seconds}`;
        const signal = AbortSignal.any([stop.signal, AbortSignal.timeout(TIMEOUT_MS)]);
        const { result } = await callJson<{ result: Status }>(`/api/status${since}`, { signal });
        const notice = noticeOf(known, result, trouble);
        known = mergeStatus(known, result);
        if (since === '') wholeAt = performance.now();
        trouble = undefined;
        setStatus(known);
        setConnection((before) => ({ trouble, notice: notice ?? before.notice }));
        return again(EVERY_MS);
      } catch (error) {
        if (stop.signal.aborted) return undefined;
        const refusal = error instanceof CallError && error.status > 0 ? error : undefined;
        if (refusal?.status === 401 || refusal?.status === 403) return refused.current(refusal.message);
        trouble = { since: trouble?.since ?? Date.now(), refusal: refusal?.message };
        setConnection((before) => ({ ...before, trouble }));
        const askedMs = refusal?.retryAfterMs ?? 0;
        notBefore = performance.now() + askedMs;
        return again(Math.max(AFTER_FAILURE_MS, askedMs));
      }
    }
    function again(ms: number): void {
      timer = window.setTimeout(() => void look(), ms);
    }
    void look();
    const onVisible = (): void => {
      // a second request would begin a second series of them
      if (document.hidden || timer === 0 || performance.now() < notBefore) return;
      window.clearTimeout(timer);
      void look();
    };
    document.addEventListener('visibilitychange', onVisible);
    return () => {
      stop.abort();
      window.clearTimeout(timer);
      document.removeEventListener('visibilitychange', onVisible);
    };
  }, [isOn]);

  return { status, connection, dismiss: () => setConnection((before) => ({ ...before, notice: undefined })) };
}

function noticeOf(before: Status | undefined, now: Status, trouble: Trouble | undefined): string | undefined {
  if (before !== undefined && before.started_at !== now.started_at)
    return 'The service was restarted. Requests are counted from its start.';
  return trouble === undefined ? undefined : 'The service answers again.';
}

/** Merges the known hour with the new answer, which is right about every step that it knows. */
export function mergeStatus(before: Status | undefined, now: Status): Status {
  // the service's clock may be set back
  if (before === undefined || now.from < before.from) return now;
  const end = now.from + now.steps * now.step_seconds;
  const from = Math.max(before.from, end - HISTORY_STEPS * now.step_seconds);
  const steps = (end - from) / now.step_seconds;
  const skipped = (from - before.from) / now.step_seconds;
  /** Merges every series of an item. `missing`: what the new answer says of an item that it does not have. */
  function merged<T extends object>({ old, fresh, latest }: Pair<T>, missing: number | null = null): T {
    const series = (key: string): Series => {
      const [earlier, later] = [old, fresh].map(
        (item) => (item as Readonly<Record<string, Series>> | undefined)?.[key],
      );
      const first = steps - now.steps;
      return Array.from({ length: steps }, (_, i) => {
        const value = i < first ? null : later === undefined ? missing : later[i - first];
        return value ?? earlier?.[skipped + i] ?? null;
      });
    };
    return Object.fromEntries(
      Object.entries(latest).map(([key, value]) => [key, Array.isArray(value) ? series(key) : value]),
    ) as T;
  }
  const endpoints = union(before.endpoints, now.endpoints, (e) => e.endpoint).map((pair) => merged(pair));
  // a service that has just started does not know what ClickHouse holds
  const isSeen = now.system?.store_seen_at !== null;
  const system = now.system && {
    ...now.system,
    topics: union(before.system?.topics ?? [], now.system.topics, (t) => t.topic).map((pair) => {
      const { events_last_hour = 0, newest_ms = null } = (isSeen ? pair.fresh : pair.old) ?? {};
      return { ...merged(pair), events_last_hour, newest_ms };
    }),
    dead_letters: union(before.system?.dead_letters ?? [], now.system.dead_letters, (d) => d.reason).map((pair) =>
      merged(pair, isSeen ? 0 : null),
    ),
  };
  return { ...now, from, steps, endpoints, system };
}

/** An item of the known hour and the same of the new answer, and the newer of both. */
interface Pair<T> {
  readonly old: T | undefined;
  readonly fresh: T | undefined;
  readonly latest: T;
}

/** Merges two lists by name. */
function union<T>(before: readonly T[], now: readonly T[], nameOf: (item: T) => string): Pair<T>[] {
  const [old, fresh] = [
    new Map(before.map((item) => [nameOf(item), item])),
    new Map(now.map((item) => [nameOf(item), item])),
  ];
  return [...new Map([...old, ...fresh])]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, latest]) => ({ old: old.get(name), fresh: fresh.get(name), latest }));
}
