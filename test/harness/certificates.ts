import { execFileSync } from 'node:child_process';
import { join } from 'node:path';

export interface Certificate {
  /** files in PEM */
  readonly cert: string;
  readonly key: string;
}

const openssl = (...args: string[]): void => {
  try {
    execFileSync('openssl', args, { stdio: 'pipe' });
  } catch (error) {
    throw new Error(
      `the tests of TLS make their certificates with OpenSSL 3: install it (${(error as Error).message})`,
      { cause: error },
    );
  }
};

/**
 * A certificate in a folder, signed by `authority` for 127.0.0.1 and localhost, or its own authority where there is
 * none.
 */
export function makeCertificate(folder: string, name: string, authority?: Certificate): Certificate {
  const made = { cert: join(folder, `${name}.pem`), key: join(folder, `${name}.key`) };
  const signed =
    authority === undefined
      ? []
      : [
          '-CA',
          authority.cert,
          '-CAkey',
          authority.key,
          '-addext',
          'subjectAltName=IP:127.0.0.1,DNS:localhost',
          '-addext',
          'basicConstraints=CA:FALSE',
        ];
  openssl(
    'req',
    '-x509',
    '-newkey',
    'ec',
    '-pkeyopt',
    'ec_paramgen_curve:prime256v1',
    '-nodes',
    '-days',
    '2',
    '-subj',
    `/CN=${name}`,
    '-keyout',
    made.key,
    '-out',
    made.cert,
    ...signed,
  );
  return made;
}
