/** One running broker, however it runs. */
export interface Backend {
  readonly run: Run;
  /** resolves with how it ended */
  readonly exited: Promise<string>;
  /** asks it to end in order */
  terminate(): Promise<void>;
  /** ends it at once */
  kill(): Promise<void>;
  /** why it ended, or where that stands */
  lastWords(): Promise<string>;
}

/** How a broker is found again: a process, or a container. */
export type Run =
  | { readonly kind: 'java'; readonly pid: number }
  | { readonly kind: 'docker'; readonly container: string };

/** A way of running a broker that is not available here; the reason completes "Docker ..." or "Java ...". */
export class Unavailable extends Error {}
