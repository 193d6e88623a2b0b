/** A running broker: a process or a container. */
export interface Backend {
  readonly run: Run;
  /** resolves with how it ended */
  readonly exited: Promise<string>;
  /** asks it to shut down */
  terminate(): Promise<unknown>;
  /** kills it */
  kill(): Promise<unknown>;
  /** why it ended, and where to read more */
  lastWords(): Promise<string>;
}

/** Identifies a running broker: a process or a container. */
export type Run =
  | { readonly kind: 'java'; readonly pid: number }
  | { readonly kind: 'docker'; readonly container: string };

/** A way to run a broker is unavailable; the reason completes "Docker ..." or "Java ...". */
export class Unavailable extends Error {}
