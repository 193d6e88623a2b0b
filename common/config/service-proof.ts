import { createHmac, randomBytes } from 'node:crypto';
import { linkSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { makeDataFolder, readOwnFile } from './data-folder.ts';

/**
 * Lets a command recognise the service of its data folder before it sends it the admin key: while the service is
 * stopped, any user of the machine can listen on its port. The service has a secret in the data folder, which only its
 * owner can read, and answers a nonce with a MAC of nonce and port. Because the MAC covers the port, another listener
 * cannot relay the question to the service.
 */
export const PROOF_PATH = '/proof';
const NONCE = /^[0-9a-f]{64}$/;

const proofFile = (dataDir: string): string => join(dataDir, 'service-proof');

/**
 * Returns the secret of a data folder. Undefined if no service ever ran on it, or the folder belongs to another user.
 */
export function readProofSecret(dataDir: string): string | undefined {
  return readOwnFile(proofFile(dataDir));
}

/** Returns the secret of a data folder and creates it if there is none. */
export function proofSecret(dataDir: string): string {
  makeDataFolder(dataDir);
  const file = proofFile(dataDir);
  const part = `${file}.${process.pid}.part`;
  writeFileSync(part, `${randomBytes(32).toString('hex')}\n`, { mode: 0o600 });
  try {
    // written completely or not at all, and never over an existing one
    linkSync(part, file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  } finally {
    rmSync(part, { force: true });
  }
  return readFileSync(file, 'utf8').trim();
}

export function newNonce(): string {
  return randomBytes(32).toString('hex');
}

/** Undefined if the nonce is malformed. */
export function proofOf(secret: string, port: number, nonce: string): string | undefined {
  return NONCE.test(nonce) ? createHmac('sha256', secret).update(`sluice ${port} ${nonce}`).digest('hex') : undefined;
}

export function isProof(secret: string, port: number, nonce: string, given: unknown): boolean {
  const right = proofOf(secret, port, nonce);
  // every nonce is used once, so how long the comparison takes tells a listener nothing
  return right !== undefined && given === right;
}
