import { createHmac, randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { keptSecret, readOwnFile } from './data-folder.ts';

/**
 * Lets a command recognise the service of its data folder before it sends it the admin key: while the service is
 * stopped, any user of the machine can listen on its port. The service has a secret in the data folder, which only its
 * owner can read, and answers a nonce with a MAC of the nonce, and of the address and port at which the question
 * arrived. The command accepts only those that it is connected to. So another listener of the machine cannot relay the
 * question: the service hears it at another address or port.
 */
export const PROOF_PATH = '/proof';
const isRandom = (text: string): boolean => /^[0-9a-f]{64}$/.test(text);
const random = (): string => randomBytes(32).toString('hex');

const proofFile = (dataDir: string): string => join(dataDir, 'service-proof');

/** Returns the secret of a data folder. Undefined if no service ran on it yet. Throws StartError if it is unreadable. */
export function readProofSecret(dataDir: string): string | undefined {
  const secret = readOwnFile(proofFile(dataDir));
  return secret !== undefined && isRandom(secret) ? secret : undefined;
}

/** Returns the secret of a data folder and creates it if there is none. Throws StartError. */
export function proofSecret(dataDir: string): string {
  return keptSecret(proofFile(dataDir), isRandom, random).secret;
}

export const newNonce = random;

/** `at` is where the question arrived, as endOf writes it. Undefined if the nonce is malformed. */
export function proofOf(secret: string, at: string, nonce: string): string | undefined {
  return isRandom(nonce) ? createHmac('sha256', secret).update(`sluice ${at} ${nonce}`).digest('hex') : undefined;
}

export function isProof(secret: string, at: string, nonce: string, given: unknown): boolean {
  const right = proofOf(secret, at, nonce);
  // every nonce is used once, so how long the comparison takes tells a listener nothing
  return right !== undefined && given === right;
}
