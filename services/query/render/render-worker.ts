import { parentPort } from 'node:worker_threads';
import { doJob, type Done, type Job } from './renderer.ts';

// The worker thread of renderer.ts.

/** Frees memory at once: it is more than the rest of the process has, and the garbage collector would take its time. */
function free({ buffer }: Uint8Array): void {
  if (buffer instanceof ArrayBuffer) buffer.transfer(0);
}

/** Throws what is wrong with the job, which ends the thread: renderer.ts starts another one. */
function work(job: Job): void {
  const { body, truncated, etag } = doJob(job);
  free(job.bytes);
  parentPort?.postMessage({ body, truncated, etag } satisfies Done, [body.buffer as ArrayBuffer]);
}

parentPort?.on('message', work);
