import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { layoutOf, type OtherFormat } from './formats.ts';
import type { Column } from '../definition/definition.ts';
import { bufferOf, renderBody, type Body, type Shape } from './render.ts';

/**
 * Makes bodies of results. A large one, in this folder one above THREAD_FROM_BYTES, is made in a thread of its own, one
 * at a time: one row may hold an event of 8 MiB (2.8 s for an event of empty objects), and nothing else must wait for
 * it.
 */
export type Job =
  | { readonly result: Uint8Array; readonly shape: Shape; readonly format: OtherFormat | undefined }
  | { readonly body: Uint8Array; readonly format: OtherFormat; readonly columns: readonly Column[] };
export type Done = Omit<Body, 'body'> & { readonly body: Uint8Array };

/** Smaller results are rendered at once: 512 KiB of empty objects take 50 ms. */
const THREAD_FROM_BYTES = 512 * 1024;
const WORKER_HEAP_MB = 512;

let worker: Worker | undefined;
/** settles when the last job has ended */
let last: Promise<void> = Promise.resolve();

/**
 * Returns the body of a result in RESULT_FORMAT, as JSON if no other format is given. It takes over the buffer, which
 * must not be used afterwards.
 */
export async function render(shape: Shape, result: Buffer, format: OtherFormat | undefined): Promise<Body> {
  return result.length <= THREAD_FROM_BYTES
    ? await renderBody(shape, result, layoutOf(format, shape.columns ?? []))
    : await inThread({ result, shape: { columns: shape.columns, maxRows: shape.maxRows }, format });
}

/** Converts a copy of a large body to another form. */
export async function convertInThread(body: Buffer, format: OtherFormat, columns: readonly Column[]): Promise<Body> {
  return await inThread({ body, format, columns });
}

async function inThread(job: Job): Promise<Body> {
  const [before, ended] = [last, Promise.withResolvers<void>()];
  last = ended.promise;
  await before;
  try {
    worker ??= startWorker();
    worker.ref();
    const given = 'result' in job ? job.result : job.body;
    // transferred if the buffer has its own memory and is no longer needed here
    worker.postMessage(
      job,
      'result' in job && given.byteLength === given.buffer.byteLength && given.buffer instanceof ArrayBuffer
        ? [given.buffer]
        : [],
    );
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
