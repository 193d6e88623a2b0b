/** A whole number that JavaScript cannot represent, as it was written. */
export class Digits {
  readonly source: string;
  constructor(source: string) {
    this.source = source;
  }
  toJSON(): unknown {
    // browsers without it cannot read numbers exactly anyway
    const { rawJSON } = JSON as unknown as { rawJSON?: (source: string) => unknown };
    return rawJSON === undefined ? this.source : rawJSON(this.source);
  }
}

/** Parses JSON and keeps the digits of whole numbers beyond 2^53, if the browser reports how a number was written. */
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
