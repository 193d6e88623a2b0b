const WINDOW_MS = 60_000;
/** The number of remembered addresses; the one with the oldest minute is evicted. */
const ADDRESSES = 100_000;

/**
 * Counts failed authentications by address. An address that failed too often is blocked until its minute is over. Until
 * then every key gets the same answer, so nobody learns which one is right. Pure: time is an argument, milliseconds.
 * `most` failures within a minute block an address.
 */
export function createFailures(most: number) {
  // in the order in which their minutes began
  const windows = new Map<string, { readonly until: number; count: number }>();

  return {
    /** Returns the seconds for which an address stays blocked. Undefined if it is not blocked. */
    blockedFor(address: string, now: number): number | undefined {
      const window = windows.get(networkOf(address));
      return window !== undefined && window.until > now && window.count >= most
        ? Math.ceil((window.until - now) / 1000)
        : undefined;
    },
    /** Records a failed authentication. Returns true if the address is blocked from now on. */
    note(address: string, now: number): boolean {
      const network = networkOf(address);
      const window = windows.get(network);
      if (window !== undefined && window.until > now) return ++window.count === most;
      windows.delete(network);
      for (const [oldest, { until }] of windows) {
        if (until > now && windows.size < ADDRESSES) break;
        windows.delete(oldest);
      }
      windows.set(network, { until: now + WINDOW_MS, count: 1 });
      return most === 1;
    },
    /** Takes back a recorded failure that was none. */
    takeBack(address: string): void {
      const window = windows.get(networkOf(address));
      if (window !== undefined && window.count > 0) window.count--;
    },
  };
}

/** Returns an IPv4 address, or the /64 of an IPv6 address, because whoever has one address of it has all of them. */
export function networkOf(address: string): string {
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1];
  if (mapped !== undefined || !address.includes(':')) return mapped ?? address;
  // `::` stands for the groups that are missing of eight
  const missing = Math.max(0, 9 - address.split(':').length);
  const groups = address.replace('::', `:${'0:'.repeat(missing)}`).split(':', 4);
  return `${groups.map((group) => Number.parseInt(group || '0', 16).toString(16)).join(':')}::/64`;
}
