/**
 * Returns the partition that Kafka's Java producer chooses for a key: murmur2 of its bytes, without the sign, modulo
 * the number of partitions. We do not use kafkajs's function: it multiplies in BigInt and never cuts the product to 32
 * bits, so its time grows with the square of the key's length. A key of one million bytes blocked the process for 6.5
 * minutes.
 */
export function partitionOf(key: Uint8Array, partitions: number): number {
  return (murmur2(key) & 0x7fffffff) % partitions;
}

const SEED = 0x9747b28c;
const M = 0x5bd1e995;
const R = 24;

/** Returns murmur2 as org.apache.kafka.common.utils.Utils.murmur2 computes it: a signed integer of 32 bits. */
export function murmur2(data: Uint8Array): number {
  const { length } = data;
  const whole = length & ~3;
  let h = SEED ^ length;
  for (let i = 0; i < whole; i += 4) {
    let k = data[i]! | (data[i + 1]! << 8) | (data[i + 2]! << 16) | (data[i + 3]! << 24);
    k = Math.imul(k, M);
    k ^= k >>> R;
    h = Math.imul(h, M) ^ Math.imul(k, M);
  }
  const rest = length - whole;
  if (rest > 2) h ^= data[whole + 2]! << 16;
  if (rest > 1) h ^= data[whole + 1]! << 8;
  if (rest > 0) h = Math.imul(h ^ data[whole]!, M);
  h = Math.imul(h ^ (h >>> 13), M);
  return h ^ (h >>> 15);
}
