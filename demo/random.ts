/**
 * Seeded random numbers: xoshiro128** 1.1 (Blackman and Vigna, "Scrambled Linear Pseudorandom Number Generators", 2018;
 * period 2^128 - 1), its state filled by the finalizer of MurmurHash3. The same seeds give the same numbers on every
 * machine.
 */
export interface Random {
  /** 0 <= n < 2^32 */
  uint32(): number;
  /** 0 <= x < 1, 32 bits */
  fraction(): number;
  /** integer, 0 <= n < limit; limit up to 2^32 */
  below(limit: number): number;
  /** true with this probability, 0 to 1; 0 and 1 are exact */
  chance(probability: number): boolean;
  pick<T>(list: readonly T[]): T;
  /** standard normal (Box and Muller 1958) */
  normal(): number;
  /** lognormal with this median; sigma is the deviation of its logarithm */
  logNormal(median: number, sigma: number): number;
  /** lower-case hex digits, a multiple of 4 of them */
  hex(digits: number): string;
  /** random UUID, version 4 */
  uuid(): string;
  /** lower-case letters */
  letters(count: number): string;
}

const hex4: readonly string[] = Array.from({ length: 65_536 }, (_, i) => i.toString(16).padStart(4, '0'));
const lowerCase = 'abcdefghijklmnopqrstuvwxyz';

/** Finalizer of MurmurHash3 (Appleby): 32 bits well mixed. */
function mix(n: number): number {
  let h = n | 0;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

/** A generator that depends on all of the seeds, in their order; equal seeds give equal sequences. */
export function createRandom(...seeds: number[]): Random {
  let h = 0x9e3779b9;
  for (const seed of seeds) h = mix(mix(h ^ (seed >>> 0)) + Math.floor(seed / 2 ** 32) + 0x6d2b79f5);
  let a = mix(h + 1) | 0;
  let b = mix(h + 2) | 0;
  let c = mix(h + 3) | 0;
  let d = mix(h + 4) | 1;

  const uint32 = (): number => {
    const x = Math.imul(b, 5);
    const result = Math.imul((x << 7) | (x >>> 25), 9);
    const t = b << 9;
    c ^= a;
    d ^= b;
    b ^= c;
    a ^= d;
    c ^= t;
    d = (d << 11) | (d >>> 21);
    return result >>> 0;
  };
  const fraction = (): number => uint32() / 4_294_967_296;
  const below = (limit: number): number => Math.floor(fraction() * limit);
  const normal = (): number => Math.sqrt(-2 * Math.log(1 - fraction())) * Math.cos(2 * Math.PI * fraction());
  const piece = (): string => hex4[uint32() >>> 16] as string;
  return {
    uint32,
    fraction,
    below,
    chance: (probability) => probability > 0 && fraction() < probability,
    pick: (list) => {
      if (list.length === 0) throw new Error('nothing to pick from');
      return list[below(list.length)] as (typeof list)[number];
    },
    normal,
    logNormal: (median, sigma) => median * Math.exp(sigma * normal()),
    hex: (digits) => {
      let text = '';
      for (let i = 0; i < digits; i += 4) text += piece();
      return text;
    },
    uuid: () =>
      `${piece()}${piece()}-${piece()}-4${piece().slice(1)}-${'89ab'[uint32() & 3]}${piece().slice(1)}-${piece()}${piece()}${piece()}`,
    letters: (count) => {
      let text = '';
      for (let i = 0; i < count; i++) text += lowerCase[below(26)];
      return text;
    },
  };
}

/** A share per value; they need not add up to 1, absent = 0. */
export type Weights<T extends string> = { readonly [K in T]?: number };

/**
 * Draws an index with probability in proportion to its weight, in constant time (Walker 1977, built as Vose 1991). At
 * least one weight must be above 0.
 */
export function weightedIndex(weights: readonly number[]): (random: Random) => number {
  const total = weights.reduce((sum, w) => sum + w, 0);
  if (!(total > 0) || weights.some((w) => !(w >= 0))) throw new Error('weights must be 0 or more, one of them above 0');
  const n = weights.length;
  const probability = new Float64Array(n).fill(1);
  const alias = Uint32Array.from({ length: n }, (_, i) => i);
  const scaled = weights.map((w) => (w * n) / total);
  const small: number[] = [];
  const large: number[] = [];
  for (let i = 0; i < n; i++) ((scaled[i] as number) < 1 ? small : large).push(i);
  while (small.length > 0 && large.length > 0) {
    const s = small.pop() as number;
    const l = large[large.length - 1] as number;
    probability[s] = scaled[s] as number;
    alias[s] = l;
    const rest = (scaled[l] as number) + (scaled[s] as number) - 1;
    scaled[l] = rest;
    if (rest < 1) small.push(large.pop() as number);
  }
  // what rounding left over in `small` but weighs nothing must never come out
  for (const s of small) {
    if (weights[s] === 0) {
      probability[s] = 0;
      alias[s] = weights.findIndex((w) => w > 0);
    }
  }
  return (random) => {
    const i = random.below(n);
    return random.fraction() < (probability[i] as number) ? i : (alias[i] as number);
  };
}

/** Draws a value with probability in proportion to its weight. */
export function weighted<T extends string>(weights: Weights<T>): (random: Random) => T {
  const values = (Object.keys(weights) as T[]).filter((v) => (weights[v] ?? 0) > 0);
  const index = weightedIndex(values.map((v) => weights[v] ?? 0));
  if (values.length === 1) return () => values[0] as T;
  return (random) => values[index(random)] as T;
}

/** Weights 1, 1/2^s, 1/3^s, ...: few are large, most are small. */
export function zipf(count: number, exponent: number): number[] {
  return Array.from({ length: count }, (_, i) => 1 / (i + 1) ** exponent);
}
