/** A whole number that JavaScript cannot hold: kept as it was written. */
export class Digits {
  readonly source: string;
  constructor(source: string) {
    this.source = source;
  }
  toJSON(): unknown {
    // browsers that lack it read numbers inexactly in the first place
    const { rawJSON } = JSON as unknown as { rawJSON?: (source: string) => unknown };
    return rawJSON === undefined ? this.source : rawJSON(this.source);
  }
}

/** JSON whose whole numbers beyond 2^53 keep their digits, where the browser tells how a number was written. */
export function parseExactly(text: string): unknown {
  const revive = (_key: string, value: unknown, context?: { readonly source?: string }): unknown =>
    typeof value === 'number' &&
    !Number.isSafeInteger(value) &&
    context?.source !== undefined &&
    /^-?\d+$/.test(context.source)
      ? new Digits(context.source)
      : value;
  return JSON.parse(text, revive);
}
