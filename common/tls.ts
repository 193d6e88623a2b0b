import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
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

/**
 * Returns options of a TLS client that trusts a service's own certificate, of which `file` is the PEM, under any host
 * name; and else whom Node trusts.
 */
export function trusting(file: string | undefined): tls.ConnectionOptions {
  if (file === undefined) return {};
  const own = readFileSync(file);
  const { fingerprint256 } = new X509Certificate(own);
  return {
    ca: [...tls.getCACertificates('default'), own.toString()],
    allowPartialTrustChain: true,
    checkServerIdentity: (host, peer) =>
      peer.fingerprint256 === fingerprint256 ? undefined : tls.checkServerIdentity(host, peer),
  };
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
