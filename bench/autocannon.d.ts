/** The part of autocannon 9 that the benches use; the package has no types of its own. Latencies are milliseconds. */
declare module 'autocannon' {
  export interface Load {
    readonly url: string;
    readonly headers?: Readonly<Record<string, string>>;
    readonly connections: number;
    /** seconds */
    readonly duration: number;
    /** requests a second of all connections together; each connection sends its share at the start of every second */
    readonly overallRate?: number;
  }
  export interface Outcome {
    readonly requests: { readonly average: number; readonly total: number };
    readonly latency: { readonly p50: number; readonly p90: number; readonly p99: number; readonly max: number };
    readonly errors: number;
    readonly timeouts: number;
    readonly non2xx: number;
  }
  export interface Running extends Promise<Outcome> {
    on(
      event: 'response',
      listener: (client: unknown, status: number, bytes: number, milliseconds: number) => void,
    ): void;
  }
  export default function autocannon(load: Load): Running;
}
