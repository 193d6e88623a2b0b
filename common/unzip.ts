/** With zlib's default of 16 KiB, each 16 KiB of output would go through the thread pool once more. */
export const CHUNK_BYTES = 256 * 1024;

/** A function of node:zlib, promisified. */
export type Unpack = (
  data: Buffer,
  options: { readonly maxOutputLength: number; readonly chunkSize: number; readonly info: true },
) => Promise<unknown>;

/** What Node returns with `info`, which its types lack. */
export interface Unpacked {
  readonly buffer: Buffer;
  /** `bytesWritten`: how much of the data it has read; of several zstd frames only the first */
  readonly engine: { readonly bytesWritten: number };
}

/** Decompresses all at once. Undefined if the result would exceed maxBytes. Throws Node's error if data is broken. */
export async function unzip(unpack: Unpack, data: Buffer, maxBytes: number): Promise<Unpacked | undefined> {
  try {
    return (await unpack(data, { maxOutputLength: maxBytes, chunkSize: CHUNK_BYTES, info: true })) as Unpacked;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE') return undefined;
    throw error;
  }
}
