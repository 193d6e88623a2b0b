/**
 * CRC-64-AVRO, the 64-bit Rabin fingerprint by which single-object encoding names a schema.
 * https://avro.apache.org/docs/1.12.0/specification/#schema-fingerprints, whose table this is.
 */
const EMPTY = 0xc15d213aa4d7a795n;

const TABLE = Array.from({ length: 256 }, (_, byte) => {
  let fingerprint = BigInt(byte);
  for (let bit = 0; bit < 8; bit++) fingerprint = (fingerprint >> 1n) ^ (EMPTY & -(fingerprint & 1n));
  return fingerprint;
});

/** The fingerprint of a schema's Parsing Canonical Form, as an unsigned number of 64 bits. */
export function fingerprintOf(canonicalForm: string): bigint {
  let fingerprint = EMPTY;
  for (const byte of Buffer.from(canonicalForm))
    fingerprint = (fingerprint >> 8n) ^ TABLE[Number((fingerprint ^ BigInt(byte)) & 0xffn)]!;
  return fingerprint;
}
