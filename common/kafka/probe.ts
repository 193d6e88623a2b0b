import net from 'node:net';
import tls from 'node:tls';

/**
 * What answers at an address: a Kafka broker, something else, or nothing. `reason` is the system's error, if it has
 * one.
 */
export type Probe =
  | { readonly kind: 'kafka' }
  | { readonly kind: 'other'; readonly reason?: string }
  | { readonly kind: 'nothing'; readonly reason: string };

/**
 * An ApiVersions request, version 0 (kafka.apache.org/protocol): every broker answers it before authentication, whatever
 * its version. Size of what follows, number and version of the request, our correlation id, no client id.
 */
const API_VERSIONS = Buffer.from(['0000000a', '0012', '0000', '736c7569', 'ffff'].join(''), 'hex');
const CORRELATION_ID = API_VERSIONS.readInt32BE(8);

/**
 * Probes one address (host:port; settings refuse IPv6) once, within timeoutMs, for a Kafka broker. Never throws. It
 * does not use the client, whose attempts take longer and fill the log.
 */
export function probe(broker: string, timeoutMs: number, ssl: boolean | tls.ConnectionOptions = false): Promise<Probe> {
  const [host = '', port] = broker.split(':');
  const address = { host, port: Number(port) };
  return new Promise((resolve) => {
    let received = Buffer.alloc(0);
    let connected = false;
    const socket =
      ssl === false
        ? net.connect(address)
        : tls.connect({
            ...address,
            ...(net.isIP(host) === 0 ? { servername: host } : {}),
            ...(ssl === true ? {} : ssl),
          });
    const end = (result: Probe): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(result);
    };
    const timer = setTimeout(
      () => end(connected ? { kind: 'other' } : { kind: 'nothing', reason: 'ETIMEDOUT' }),
      timeoutMs,
    );
    socket.on(ssl === false ? 'connect' : 'secureConnect', () => {
      connected = true;
      socket.write(API_VERSIONS);
    });
    socket.on('data', (chunk: Buffer) => {
      received = Buffer.concat([received, chunk]);
      if (received.length >= 8) end({ kind: received.readInt32BE(4) === CORRELATION_ID ? 'kafka' : 'other' });
    });
    socket.on('error', (error: NodeJS.ErrnoException) =>
      end({ kind: connected ? 'other' : 'nothing', reason: error.code ?? error.message }),
    );
    socket.on('close', () => end(connected ? { kind: 'other' } : { kind: 'nothing', reason: 'closed' }));
  });
}
