/**
 * What the engine's JSON reader (simdjson, numbers as 64-bit integers or doubles) can refuse or read inexactly in a valid document:
 * integers of 19 digits and more, exponents, decimals and -0 as values, lone surrogate escapes.
 */
const MAY_BE_INEXACT = /[0-9]{19}|[0-9][eE][+-]?[0-9]|:\s*-?[0-9]+\.|:\s*-0|\\u[dD][89a-fA-F]/;

const TOKEN = /"(?:[^"\\]|\\.)*"|-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/g;
const SURROGATE_ESCAPES = /\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\./g;

const strictUtf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/**
 * The same document for the engine to read fields from: every number written as a string (a mapping takes both alike, and a string keeps
 * its digits), a lone surrogate escape replaced by U+FFFD. Empty where none is needed or the message is not valid JSON in UTF-8:
 * then the engine's own verdict on the message stands.
 */
export function probeOf(value: Uint8Array): string {
  let text: string;
  try {
    text = strictUtf8.decode(value);
    if (!MAY_BE_INEXACT.test(text)) return '';
    JSON.parse(text);
  } catch {
    return '';
  }
  return text.replace(TOKEN, (token) => (token.startsWith('"') ? token.replace(SURROGATE_ESCAPES, replaceLone) : `"${token}"`));
}

function replaceLone(escape: string): string {
  return escape.length === 6 ? '\\ufffd' : escape;
}
