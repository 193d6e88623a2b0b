import { RE2JS } from 're2js';

/**
 * Patterns run in linear time (RE2), but a long program makes each step expensive: over 2 MB of text, a program of 200
 * took 2 s of CPU at worst, and `.{1000}.{500}!` 45 s. ClickHouse checks its limits between rows only, so the size is
 * bounded before a pattern runs.
 */
export const LARGEST_PATTERN = 200;
/** A longer pattern is too large. */
export const PATTERN_CHARACTERS = 1024;
/** RE2JS compiles a pattern of as many parts in 10 to 30 ms, and the largest one of PATTERN_CHARACTERS in 2.4 s. */
const MOST_COMPILED = 2_500;
/** A class of this many characters, as written, costs about as much as one letter. */
const CLASS_CHARACTERS = 16;
/** `\p{L}` stands for hundreds of ranges: 290 of them took five times as long as 290 dots. */
const UNICODE_CLASS = 10;
/**
 * Every program begins with an instruction that fails and ends with one that matches; they are no parts of the pattern.
 */
const FRAME = 2;
/** A group that captures has two instructions of its own; every group counts so. */
const CAPTURE = 2;
/**
 * Names, references and hosts, separated by `|`. RE2's automaton for them has at most one state a character (Aho and
 * Corasick, 1975), so a step costs the same for any number of them.
 */
const TEXTS = /^(?:[\w:/|-]|\\[.:/-])*$/;
/** What stands for itself: quoted text, a character by its number, any other escape. */
const LITERAL = /\\Q(.*?)(?:\\E|$)|\\x\{[\dA-Fa-f]+\}|\\[^pP]/gs;
/** It is no part: a repetition behind it repeats what stands before it. */
const FLAGS = /\(\?[A-Za-z-]+\)/g;
const CLASS = /\[\^?\]?(?:\[:\^?\w+:\]|[^\]])*\]/g;

/**
 * Returns the size of a pattern's program, with repetitions multiplied out and wide classes weighted. Undefined if it
 * is not RE2 syntax.
 */
export function patternSize(pattern: string): number | undefined {
  // found without a program
  if (/^[\w:/-]*$/.test(pattern)) return 1;
  if (pattern.length > PATTERN_CHARACTERS) return pattern.length;
  if (TEXTS.test(pattern)) return 1;
  const outline = pattern.replaceAll(LITERAL, (_, quoted?: string) => '_'.repeat(quoted?.length ?? 1));
  const parts = partsOf(outline.replaceAll(CLASS, '_').replaceAll(FLAGS, ''));
  if (parts > MOST_COMPILED) return parts;
  let widest = /\\[pP]/.test(outline) ? UNICODE_CLASS : 1;
  for (const [one] of outline.matchAll(CLASS)) widest = Math.max(widest, Math.ceil(one.length / CLASS_CHARACTERS));
  try {
    return (RE2JS.compile(pattern).programSize() - FRAME) * widest;
  } catch {
    return undefined;
  }
}

/**
 * Returns how many parts an outline has, with repetitions multiplied out. It counts `a|b`, one part, as three, and
 * `a{0,9}`, up to eighteen, as nine.
 */
function partsOf(outline: string): number {
  /** of each open group, the outermost first */
  const groups = [0];
  /** of what a repetition behind it would repeat */
  let last = 0;
  for (const [token, from, to] of outline.matchAll(/\{(\d+)(?:,(\d+)?)?\}|[^]/g)) {
    if (token === '(') {
      groups.push(CAPTURE);
      continue;
    }
    let added = 1;
    if (token === ')' && groups.length > 1) added = groups.pop()!;
    if (from !== undefined) added = last * (Math.max(Number(from), Number(to ?? 0)) - 1);
    last = from === undefined ? added : last + added;
    groups.push(groups.pop()! + added);
  }
  return groups.reduce((sum, of) => sum + of);
}

/** Returns why a pattern may not run, completing "<parameter> ...". Undefined if it may. */
export function refusedPattern(pattern: string): string | undefined {
  const size = patternSize(pattern);
  if (size === undefined) return 'is not a pattern in RE2 syntax';
  if (size <= LARGEST_PATTERN) return undefined;
  if (pattern.length > PATTERN_CHARACTERS) return `has more than ${PATTERN_CHARACTERS} characters`;
  return `is too large a pattern: it has ${size} parts with repetitions multiplied out, more than ${LARGEST_PATTERN}`;
}

const compiledPatterns = new Map<string, RE2JS>();

/** Returns whether a pattern of a definition, which refusedPattern accepts, is found in a text. Runs in linear time. */
export function matches(pattern: string, text: string): boolean {
  const compiled = compiledPatterns.get(pattern) ?? RE2JS.compile(pattern);
  compiledPatterns.set(pattern, compiled);
  return compiled.matcher(text).find();
}
