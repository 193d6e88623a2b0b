import { once } from 'node:events';
import tls from 'node:tls';

/**
 * Returns whether Node's code (a name of OpenSSL's X509_V_ERR_*) means that a certificate is untrusted, expired, or
 * belongs to another host.
 */
export function isCertificateError(code: string): boolean {
  return /^(CERT_|UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_|INVALID_CA|INVALID_PURPOSE|HOSTNAME_MISMATCH|ERR_TLS_CERT_)/.test(
    code,
  );
}

const HANDSHAKE_MS = 3_000;

/** Returns whether a TLS server listens there, with any certificate. Never throws. */
export async function speaksTls({ host, port }: { readonly host: string; readonly port: number }): Promise<boolean> {
  const socket = tls.connect({ host, port, rejectUnauthorized: false });
  socket.on('error', () => undefined); // also after the answer
  try {
    await once(socket, 'secureConnect', { signal: AbortSignal.timeout(HANDSHAKE_MS) });
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}
