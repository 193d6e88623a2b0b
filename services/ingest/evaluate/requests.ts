/** What is read from an edge request: API families from its path, project references from its url. */
const FAMILIES = ['/rest', '/storage', '/auth', '/realtime'].map((mark, k) => ({
  mark: Buffer.from(mark),
  bit: 1 << k,
}));
/** By the third letter behind the slash: all four tried at each of 5 million slashes took 150 ms on a slow machine. */
const FAMILY_BY_LETTER = Array.from({ length: 256 }, (_, letter) => FAMILIES.find(({ mark }) => mark[3] === letter));

/** A reference is this many lower-case letters. */
export const REF_LETTERS = 20;
/**
 * Each reference is three rows of the rollup. The rows of a whole insert are made at once: 25,600 events with hostile
 * URLs took 917 MB with 64 references, which the table's migration still names, and take 258 MB with 16.
 */
const MAX_REFS = 16;
/** Letters in runs of REF_LETTERS and more: beyond it an event's references are not made. */
const MAX_LETTERS = 256;

/** Bit k is set where bytes[from, to) contains the mark of family k. */
export function familiesOf(bytes: Uint8Array, from: number, to: number): number {
  let bits = 0;
  for (let i = from; i + 3 < to; i++) {
    if (bytes[i] !== 0x2f) continue;
    const family = FAMILY_BY_LETTER[bytes[i + 3]!];
    if (family !== undefined && isAt(family.mark, bytes, i, to)) bits |= family.bit;
  }
  return bits;
}

function isAt(mark: Uint8Array, bytes: Uint8Array, at: number, to: number): boolean {
  if (at + mark.length > to) return false;
  let k = 1;
  while (k < mark.length && bytes[at + k] === mark[k]) k++;
  return k === mark.length;
}

/**
 * Returns where each distinct text of 20 lower-case letters in bytes[from, to) starts. Undefined if there are more
 * than MAX_REFS, or more than MAX_LETTERS letters in runs of 20 and more.
 */
export function refsOf(bytes: Uint8Array, from: number, to: number): number[] | undefined {
  const starts: number[] = [];
  let letters = 0;
  let run = 0;
  for (let i = from; i <= to; i++) {
    const c = i < to ? bytes[i]! : 0;
    if (c >= 0x61 && c <= 0x7a) {
      run++;
      continue;
    }
    if (run >= REF_LETTERS) {
      letters += run;
      if (letters > MAX_LETTERS) return undefined;
      for (let start = i - run; start <= i - REF_LETTERS; start++) {
        if (starts.some((other) => isSame(bytes, other, start))) continue;
        if (starts.length === MAX_REFS) return undefined;
        starts.push(start);
      }
    }
    run = 0;
  }
  return starts;
}

function isSame(bytes: Uint8Array, one: number, other: number): boolean {
  let k = 0;
  while (k < REF_LETTERS && bytes[one + k] === bytes[other + k]) k++;
  return k === REF_LETTERS;
}
