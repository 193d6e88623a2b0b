import { parentPort } from 'node:worker_threads';
import { layoutOf } from './formats.ts';
import { bufferOf, convertBytes, renderBytes, type Body } from './render.ts';
import type { Done, Job } from './renderer.ts';

// The worker thread of renderer.ts.
function bodyOf(job: Job): Body & { readonly body: Buffer } {
  if ('body' in job) return convertBytes(bufferOf(job.body), layoutOf(job.format, job.columns));
  const { result, shape, format } = job;
  return renderBytes(shape, bufferOf(result), layoutOf(format, shape.columns ?? []));
}

/** Frees memory at once: it is more than the rest of the process has, and the garbage collector would take its time. */
function free({ buffer }: Uint8Array): void {
  if (buffer instanceof ArrayBuffer) buffer.transfer(0);
}

/** Throws what is wrong with the job, which ends the thread: renderer.ts starts another one. */
function work(job: Job): void {
  const { body, truncated, etag } = bodyOf(job);
  free('result' in job ? job.result : job.body);
  parentPort?.postMessage({ body, truncated, etag } satisfies Done, [body.buffer as ArrayBuffer]);
}

parentPort?.on('message', work);
