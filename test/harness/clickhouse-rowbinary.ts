/** One row of RowBinary: UInt64, then Strings. */
export function row(number: number | bigint, ...strings: readonly (string | Uint8Array)[]): Buffer {
  const head = Buffer.alloc(8);
  head.writeBigUInt64LE(BigInt(number));
  return Buffer.concat([
    head,
    ...strings.flatMap((s) => {
      const bytes = typeof s === 'string' ? Buffer.from(s, 'utf8') : s;
      return [varint(bytes.length), bytes];
    }),
  ]);
}

/** LEB128 */
function varint(n: number): Uint8Array {
  const bytes: number[] = [];
  let rest = n;
  for (; rest > 127; rest = Math.floor(rest / 128)) bytes.push((rest % 128) | 128);
  return Uint8Array.from([...bytes, rest]);
}
