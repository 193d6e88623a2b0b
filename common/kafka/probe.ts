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

const CORRELATION_ID = 0x736c7569;

/**
 * Returns an ApiVersions request, version 0 (kafka.apache.org/protocol): every broker answers it before authentication,
 * whatever its version.
 */
function apiVersionsRequest(): Buffer {
  const request = Buffer.alloc(14);
  request.writeInt32BE(10, 0); // size of what follows
  request.writeInt16BE(18, 4); // ApiVersions
  request.writeInt16BE(0, 6); // version
  request.writeInt32BE(CORRELATION_ID, 8);
  request.writeInt16BE(-1, 12); // no client id
  return request;
}

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
      socket.write(apiVersionsRequest());
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
