/** Returns `http://host:port` as a URL; an IPv6 address is put in brackets. */
export function addressOf(host: string, port: number, scheme: 'http' | 'https' = 'http'): string {
  return `${scheme}://${host.includes(':') ? `[${host}]` : host}:${port}`;
}
