import { Worker } from 'node:worker_threads';
import { JSON_LAYOUT, layoutOf, type OtherFormat } from './formats.ts';
import type { Column } from '../definition/definition.ts';
import { bufferOf, renderBody, type Body, type Shape } from './render.ts';

/**
 * Makes bodies of results. A large one is made in a thread of its own, one at a time: one row may hold an event of 8
 * MiB (2.8 s for an event of empty objects), and nothing else must wait for it.
 */
export type Job =
  | { readonly result: Uint8Array; readonly shape: Shape; readonly format: OtherFormat | undefined }
  | { readonly body: Uint8Array; readonly format: OtherFormat; readonly columns: readonly Column[] };
export type Done =
  | { readonly body: Uint8Array; readonly truncated: boolean; readonly etag: string }
  | { readonly error: string };

/** bytes; 512 KiB of empty objects take 50 ms */
const LARGE_RESULT = 512 * 1024;
const WORKER_HEAP_MB = 512;

interface Waiting {
  readonly job: Job;
  readonly resolve: (body: Body) => void;
  readonly reject: (error: Error) => void;
}

const queue: Waiting[] = [];
let worker: Worker | undefined;
let current: Waiting | undefined;

/**
 * Returns the body of a result in RESULT_FORMAT, as JSON if no other format is given. It takes over the buffer, which must
 * not be used afterwards.
 */
export async function render(shape: Shape, result: Buffer, format: OtherFormat | undefined): Promise<Body> {
  return result.length <= LARGE_RESULT
    ? await renderBody(shape, result, format === undefined ? JSON_LAYOUT : layoutOf(format, shape.columns ?? []))
    : await inThread({ result, shape: { columns: shape.columns, maxRows: shape.maxRows }, format });
}

/** Converts a copy of a large body to another form. */
export async function convert(body: Buffer, format: OtherFormat, columns: readonly Column[]): Promise<Body> {
  return await inThread({ body, format, columns });
}

function inThread(job: Job): Promise<Body> {
  return new Promise((resolve, reject) => {
    queue.push({ job, resolve, reject });
    if (current === undefined) next();
  });
}

function next(): void {
  current = queue.shift();
  if (current === undefined) {
    worker?.unref();
    return;
  }
  worker ??= startWorker();
  worker.ref();
  const given = 'result' in current.job ? current.job.result : current.job.body;
  // transferred if the buffer has its own memory and is no longer needed here
  worker.postMessage(
    current.job,
    'result' in current.job && given.byteLength === given.buffer.byteLength && given.buffer instanceof ArrayBuffer
      ? [given.buffer]
      : [],
  );
}

function settle(done: (waiting: Waiting) => void): void {
  const waiting = current;
  if (waiting !== undefined) done(waiting);
  next();
}

function startWorker(): Worker {
  const started = new Worker(new URL('render-worker.ts', import.meta.url), {
    resourceLimits: { maxOldGenerationSizeMb: WORKER_HEAP_MB },
  });
  started.on('message', (done: Done) =>
    settle(({ resolve, reject }) => {
      if ('error' in done) reject(new Error(done.error));
      else resolve({ ...done, body: bufferOf(done.body) });
    }),
  );
  started.on('error', (error) => {
    worker = undefined;
    settle(({ reject }) => reject(error instanceof Error ? error : new Error(String(error))));
  });
  return started;
}
