/** `http://host:port`, as a URL has it: an IPv6 address stands in brackets. */
export function addressOf(host: string, port: number, scheme: 'http' | 'https' = 'http'): string {
  return `${scheme}://${host.includes(':') ? `[${host}]` : host}:${port}`;
}
