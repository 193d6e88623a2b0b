import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { setPriority, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Read, Reader, ReadResult } from '../clickhouse.ts';
import { ClickHouseError, fromSystem, refusal, type Failure } from '../errors.ts';
import { cancelled, createPool, READ_QUEUE } from '../pool.ts';

/** What the process says: without both, that it is ready. */
export interface FromIsolated {
  readonly result?: ReadResult;
  readonly failure?: Failure & { readonly message: string };
}

interface Process {
  readonly child: ChildProcess;
  /** fires when it has ended or could not be started, with the error of its statement as the reason */
  readonly ended: AbortSignal;
}

const PROCESS = fileURLToPath(new URL('isolated-process.ts', import.meta.url));
/** Each has an engine, which takes 150 MB when idle. */
const PROCESSES = 2;
const START_MS = 20_000;
/** How long beyond its max_execution_time a statement may take to end by itself, milliseconds. */
const GRACE_MS = 1_000;
const DEFAULT_SECONDS = 20;
/** a lower priority than the answers of our own engine */
const NICE = 10;

/**
 * Runs callers' texts beside the embedded engine: in a process of its own, whose engine has none of our tables, no
 * other statements and no rights. It receives a statement with parameters and returns rows. The engine checks its
 * limits between blocks only; here a statement that exceeds them ends with its process. The process is started on
 * demand and kept.
 */
export function createIsolated(): Reader & { close(): Promise<void> } {
  const live = new Set<Process>();
  const processes = createPool<Process>({
    size: PROCESSES,
    queueLimit: READ_QUEUE,
    idleLimit: PROCESSES,
    close: end,
    open: () => start(live),
    // a process whose statement ended by itself is reused
    recover: ({ child, ended }) => Promise.resolve(!ended.aborted && !child.killed),
  });
  return {
    read: ({ signal, ...read }) => processes.use('', (process) => ask(process, read, signal), signal),
    async close() {
      await processes.close();
      for (const process of live) {
        // until it has ended, this process must not end either
        process.child.ref();
        end(process);
      }
      await Promise.all([...live].map(({ ended }) => once(ended, 'abort')));
    },
  };
}

async function start(live: Set<Process>): Promise<Process> {
  let folder = '';
  let child: ChildProcess;
  try {
    folder = mkdtempSync(join(tmpdir(), 'sluice-isolated-'));
    child = fork(PROCESS, [folder], {
      cwd: folder,
      env: { UV_THREADPOOL_SIZE: '8' },
      execArgv: [],
      serialization: 'advanced',
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    });
  } catch (error) {
    // without room or memory for it, for instance; other failures are events
    if (folder !== '') rmSync(folder, { recursive: true, force: true });
    throw fromSystem(error, false, false);
  }
  const ending = new AbortController();
  const process: Process = { child, ended: ending.signal };
  const onEnd = (reason: Error): void => {
    rmSync(folder, { recursive: true, force: true });
    live.delete(process);
    ending.abort(reason);
  };
  child.once('exit', () => onEnd(refusal(1001, 'The isolated process has ended')));
  child.on('error', (error) => {
    // it could not be started, and has no exit
    if (child.pid === undefined) onEnd(fromSystem(error, false, false));
  });
  live.add(process);
  try {
    await answer(process, START_MS);
    setPriority(child.pid ?? 0, NICE);
  } catch (error) {
    end(process);
    throw error;
  }
  child.channel?.unref();
  return process;
}

function end({ child }: Process): void {
  child.kill('SIGKILL');
}

async function ask(process: Process, read: Omit<Read, 'signal'>, signal: AbortSignal | undefined): Promise<ReadResult> {
  if (signal?.aborted === true) throw cancelled();
  const seconds = Number(read.settings?.['max_execution_time'] ?? DEFAULT_SECONDS);
  const { result, failure } = await answer(process, seconds * 1000 + GRACE_MS, read, signal);
  if (failure !== undefined) throw new ClickHouseError(failure.message, failure);
  const { body, ...counts } = result!;
  return { body: Buffer.from(body.buffer, body.byteOffset, body.byteLength), ...counts };
}

/** Returns the next message of a process, which gets `read` before. Any other event ends the process. */
async function answer(
  { child, ended }: Process,
  withinMs: number,
  read?: Omit<Read, 'signal'>,
  signal?: AbortSignal,
): Promise<FromIsolated> {
  const late = AbortSignal.timeout(Math.ceil(withinMs));
  const over = AbortSignal.any([late, ended, ...(signal === undefined ? [] : [signal])]);
  // While it works it keeps our process alive. While it is idle it does not.
  child.ref();
  try {
    const message = once(child, 'message', { signal: over });
    // if `send` throws, nobody awaits it
    message.catch(() => {});
    // It may have been killed while it was idle, for its memory for instance. With a callback, a closed channel is no
    // event: as one it could come after the answer, and end our own process
    if (read !== undefined && !ended.aborted) child.send(read, () => undefined);
    return ((await message) as [FromIsolated])[0];
  } catch (error) {
    child.kill('SIGKILL');
    if (ended.aborted) throw ended.reason;
    if (signal?.aborted === true) throw cancelled();
    throw late.aborted ? refusal(159, 'Timeout exceeded: the isolated process was killed') : error;
  } finally {
    child.unref();
  }
}
