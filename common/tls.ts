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
export function speaksTls({ host, port }: { readonly host: string; readonly port: number }): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = tls.connect({ host, port, rejectUnauthorized: false });
    const end = (answer: boolean): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(answer);
    };
    const timer = setTimeout(() => end(false), HANDSHAKE_MS);
    socket.once('secureConnect', () => end(true));
    socket.on('error', () => end(false));
    socket.once('close', () => end(false));
  });
}
