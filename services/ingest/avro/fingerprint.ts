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

/**
 * The fingerprint of a schema's Parsing Canonical Form as it stands in a message: 8 bytes, the lowest first, as 16 hex
 * digits.
 */
export function wireFingerprint(canonicalForm: string): string {
  let fingerprint = EMPTY;
  for (const byte of Buffer.from(canonicalForm))
    fingerprint = (fingerprint >> 8n) ^ TABLE[Number((fingerprint ^ BigInt(byte)) & 0xffn)]!;
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(fingerprint);
  return bytes.toString('hex');
}
