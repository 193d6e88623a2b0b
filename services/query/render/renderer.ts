import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import type { OtherFormat } from './formats.ts';
import type { Column } from '../definition/definition.ts';
import { bufferOf, convertBody, renderBody, type Body, type Shape } from './render.ts';

/**
 * Makes bodies of results. One above THREAD_FROM_BYTES ("large" in this folder) is made in a thread of its own, one
 * at a time: one row may hold an event of 8 MiB (2.8 s for an event of empty objects), and nothing else must wait for
 * it.
 */
export type Job = { readonly bytes: Uint8Array } & (
  | { readonly shape: Shape; readonly format: OtherFormat | undefined }
  | { readonly format: OtherFormat; readonly columns: readonly Column[] }
);
export type Done = Omit<Body, 'body'> & { readonly body: Uint8Array };

/** Smaller results are rendered at once: 512 KiB of empty objects take 50 ms. */
const THREAD_FROM_BYTES = 512 * 1024;
const WORKER_HEAP_MB = 512;

let worker: Worker | undefined;
/** settles when the last job has ended */
let last: Promise<void> = Promise.resolve();

/** Returns the body of a result. It takes over the buffer, which must not be used afterwards. */
export async function render(shape: Shape, result: Buffer, format: OtherFormat | undefined): Promise<Body> {
  return await run(result.length, () => ({ bytes: result, shape, format }));
}

export async function convert(body: string | Buffer, format: OtherFormat, columns: readonly Column[]): Promise<Body> {
  // the body stays as it is: a thread takes over a copy, which is made when its turn comes
  return await run(Buffer.byteLength(body), () => ({ bytes: Buffer.from(body), format, columns }));
}

export function doJob(job: Job): ReturnType<typeof renderBody> {
  const bytes = bufferOf(job.bytes);
  return 'shape' in job ? renderBody(job.shape, bytes, job.format) : convertBody(bytes, job.format, job.columns);
}

async function run(bytes: number, job: () => Job): Promise<Body> {
  if (bytes > THREAD_FROM_BYTES) return await inThread(job);
  const made = doJob(job());
  // Node sends head and body in one piece if the body is a string
  return { ...made, body: made.body.toString() };
}

async function inThread(makeJob: () => Job): Promise<Body> {
  const [before, ended] = [last, Promise.withResolvers<void>()];
  last = ended.promise;
  await before;
  try {
    worker ??= startWorker();
    worker.ref();
    const job = makeJob();
    const { buffer, byteLength } = job.bytes;
    // transferred if the buffer has its own memory
    worker.postMessage(job, buffer instanceof ArrayBuffer && byteLength === buffer.byteLength ? [buffer] : []);
    const [done] = (await once(worker, 'message')) as [Done];
    return { ...done, body: bufferOf(done.body) };
  } finally {
    worker?.unref();
    ended.resolve();
  }
}

/** A job that throws ends its worker, and rejects with that error. */
function startWorker(): Worker {
  const started = new Worker(new URL('render-worker.ts', import.meta.url), {
    resourceLimits: { maxOldGenerationSizeMb: WORKER_HEAP_MB },
  });
  // more than once: memory may run out while the first error is reported
  return started.on('error', () => {
    if (worker === started) worker = undefined;
  });
}
