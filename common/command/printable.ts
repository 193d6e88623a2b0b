/**
 * Text of others as a terminal may show it: control characters are written as escapes, but for line ends and tabs. In
 * them stand orders to the terminal,
 * to move, to hide, to type; with the marks of writing direction a line reads otherwise than it is. The escapes are
 * those of JSON, so that JSON stays JSON.
 */
export function printable(text: string): string {
  return text.replaceAll(
    /[^\P{Cc}\n\t]|[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}
