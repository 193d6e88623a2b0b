/**
 * Returns foreign text that is safe for a terminal: control characters become escapes, except line ends and tabs. They
 * could otherwise move, hide or type text, and marks of writing direction could make a line read differently. The
 * escapes are those of JSON, so JSON stays JSON.
 */
export function printable(text: string): string {
  return text.replaceAll(
    /[^\P{Cc}\n\t]|[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}
