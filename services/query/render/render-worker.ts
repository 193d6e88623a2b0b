import { parentPort } from 'node:worker_threads';
import { inFormat } from './formats.ts';
import { bufferOf, etagOf, renderBytes, type Body } from './render.ts';
import type { Done, Job } from './renderer.ts';

// The worker thread of renderer.ts.
async function bodyOf(job: Job): Promise<Body & { readonly body: Buffer }> {
  if ('result' in job) return renderBytes(job.shape, bufferOf(job.result));
  const text = await inFormat(bufferOf(job.body).toString('utf8'), job.format, job.columns);
  // not Buffer.from: a small one would share its memory with others
  const body = Buffer.allocUnsafeSlow(Buffer.byteLength(text));
  body.write(text);
  return { body, truncated: false, etag: etagOf(body) };
}

/** Frees memory at once: it is more than the rest of the process has, and the garbage collector would take its time. */
function free({ buffer }: Uint8Array): void {
  if (buffer instanceof ArrayBuffer) buffer.transfer(0);
}

async function work(job: Job): Promise<void> {
  try {
    const { body, truncated, etag } = await bodyOf(job);
    free('result' in job ? job.result : job.body);
    parentPort?.postMessage({ body, truncated, etag } satisfies Done, [body.buffer as ArrayBuffer]);
  } catch (error) {
    parentPort?.postMessage({ error: error instanceof Error ? error.message : String(error) } satisfies Done, []);
  }
}

parentPort?.on('message', (job: Job) => void work(job));
