/** Returns `http://host:port` as a URL; an IPv6 address is put in brackets. */
export function addressOf(host: string, port: number, scheme: 'http' | 'https' = 'http'): string {
  return `${scheme}://${host.includes(':') ? `[${host}]` : host}:${port}`;
}

/**
 * Returns one end of a connection as `host:port`, the same at both ends: a socket of both families shows IPv4 as
 * ::ffff:127.0.0.1.
 */
export function endOf(host = '', port = 0): string {
  return `${host.replace(/^::ffff:(?=\d+\.)/i, '')}:${port}`;
}

/** Returns whether only this machine can reach a listening address. */
export function isLoopback(host: string): boolean {
  return /^(localhost|127(\.\d{1,3}){3}|::1)$/i.test(host);
}
