const [TAB, LINE_FEED, CARRIAGE_RETURN] = [9, 10, 13];

/**
 * Returns the text of bytes that are valid UTF-8 without control characters, except line ends and tabs. Undefined if
 * they are not.
 */
export function textOf(octets: Uint8Array): string | undefined {
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(octets);
    return octets.some((b) => b < 32 && b !== TAB && b !== LINE_FEED && b !== CARRIAGE_RETURN) ? undefined : text;
  } catch {
    return undefined;
  }
}

const WIDTH = 16;

/** Returns lines with an offset, sixteen bytes in hexadecimal, and their ASCII characters. */
export function hexDump(octets: Uint8Array): string {
  const lines: string[] = [];
  for (let at = 0; at < octets.length; at += WIDTH) {
    const line = [...octets.subarray(at, at + WIDTH)];
    const hex = line.map((b) => b.toString(16).padStart(2, '0')).join(' ');
    lines.push(
      `${at.toString(16).padStart(6, '0')}  ${hex.padEnd(WIDTH * 3)} ${line.map((b) => (b >= 32 && b < 127 ? String.fromCharCode(b) : '.')).join('')}`,
    );
  }
  return lines.join('\n');
}
