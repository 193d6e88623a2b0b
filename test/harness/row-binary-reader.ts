/**
 * Reads RowBinary as its definition says; shares nothing with what writes it.
 * https://clickhouse.com/docs/interfaces/formats/RowBinary
 */
export class RowBinaryReader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(pieces: readonly Uint8Array[]) {
    this.#bytes = Buffer.concat(pieces);
  }

  get isAtEnd(): boolean {
    return this.#at === this.#bytes.length;
  }

  bytes(length: number): Buffer {
    if (this.#at + length > this.#bytes.length)
      throw new Error(`${length} bytes are read at ${this.#at} of ${this.#bytes.length}`);
    this.#at += length;
    return this.#bytes.subarray(this.#at - length, this.#at);
  }

  length(): number {
    let value = 0;
    for (let factor = 1; ; factor *= 128) {
      const byte = this.bytes(1)[0]!;
      value += (byte & 0x7f) * factor;
      if (byte < 0x80) return value;
    }
  }

  string(): Buffer {
    return this.bytes(this.length());
  }

  /** Throws TypeError where it is not UTF-8. */
  text(): string {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(this.string());
  }

  boolean(): boolean {
    const byte = this.bytes(1)[0]!;
    if (byte > 1) throw new Error(`a Bool of ${byte}`);
    return byte === 1;
  }

  nullable<T>(read: () => T): T | null {
    return this.boolean() ? null : read();
  }

  array<T>(read: () => T): T[] {
    return Array.from({ length: this.length() }, read);
  }

  uint8(): number {
    return this.bytes(1).readUInt8();
  }

  uint16(): number {
    return this.bytes(2).readUInt16LE();
  }

  uint32(): number {
    return this.bytes(4).readUInt32LE();
  }

  int64(): bigint {
    return this.bytes(8).readBigInt64LE();
  }

  float64(): number {
    return this.bytes(8).readDoubleLE();
  }
}
