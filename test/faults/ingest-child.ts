import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Reader } from '../../common/clickhouse/clickhouse.ts';
import { COMPILE_CACHE } from '../harness/compile-cache.ts';
import { waitFor } from '../harness/wait-for.ts';

/** A place in the life of a batch. in_*: the call is under way. Commits carry an intent or, when idle, an end. */
export const steps = [
  'before_intent',
  'after_intent',
  'before_insert',
  'in_insert',
  'after_insert',
  'in_ledger',
  'after_ledger',
  'before_commit',
  'after_commit',
] as const;
export type Step = (typeof steps)[number];

export interface At {
  readonly step: Step;
  /**
   * regular expression on what the step is about: `<table> <token>` or `<table> of partitions <token>` (partitions share
   * the insert); of the ledger `batches`; of a commit the topic; absent = any
   */
  readonly match?: string;
  /** at which occurrence; 1 by default */
  readonly times?: number;
  /** this much later; absent = there and then */
  readonly delayMs?: number;
  /** instead of a time: SIGKILL as soon as the embedded engine has stored a part of this table in the insert */
  readonly whenPartOf?: string;
  /** instead of a signal: the call is held back this long; what the process does beside it goes on */
  readonly holdMs?: number;
  /** instead of a signal: every such call is held back until release(); `times` is the one that atStep waits for */
  readonly holds?: true;
  /** SIGKILL by default */
  readonly signal?: 'SIGKILL' | 'SIGSTOP' | 'SIGTERM';
}

export interface IngestProcessOptions {
  /** settings */
  readonly env: Readonly<Record<string, string>>;
  readonly at?: At | undefined;
  readonly sessionTimeoutMs: number;
  readonly logLevel?: string;
  /** a query that runs before anything else works on the engine; its first row is logged as `found_at_start` */
  readonly look?: string | undefined;
  /** how Node is started: without flags by default */
  readonly flags?: NodeFlags;
}

export interface NodeFlags {
  readonly execArgv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

export type ToIngest =
  | { readonly kind: 'read'; readonly id: number; readonly read: Omit<Parameters<Reader['read']>[0], 'signal'> }
  | { readonly kind: 'release' }
  | { readonly kind: 'clock'; readonly aheadMs: number };
export type FromIngest =
  | { kind: 'running' }
  | { kind: 'at_step' }
  | { kind: 'answer'; id: number; body?: string; error?: string };

export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

export interface IngestChild {
  readonly pid: number;
  /** reads through the process's own engine; hangs for ever on a process that ended */
  readonly reader: Reader;
  /** what it logged, one JSON document per line */
  readonly log: () => string;
  /** resolves when the service runs; rejects when the process ends before */
  readonly running: Promise<void>;
  /** resolves when it is about to signal itself, or holds a call back */
  readonly atStep: Promise<void>;
  readonly exited: Promise<Exit>;
  hasEnded(): boolean;
  /** lets go what `holds` holds back, and holds nothing any more */
  release(): void;
  /** sets its clock, milliseconds ahead of the true one */
  setClock(aheadMs: number): void;
  signal(signal: NodeJS.Signals): void;
  /** SIGTERM, and how long it took, milliseconds */
  stop(): Promise<Exit & { readonly tookMs: number }>;
}

const PROCESS = fileURLToPath(new URL('ingest-process.ts', import.meta.url));
const children = new Set<IngestChild>();

/** Starts the ingest service as a process of its own. */
export function startIngestChild(options: IngestProcessOptions): IngestChild {
  const child = fork(PROCESS, [JSON.stringify(options)], {
    execArgv: [...(options.flags?.execArgv ?? [])],
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    env: { PATH: process.env['PATH'], HOME: process.env['HOME'], ...COMPILE_CACHE, ...options.flags?.env },
  });
  let log = '';
  child.stderr!.setEncoding('utf8').on('data', (text: string) => {
    log += text;
  });
  const exited = new Promise<Exit>((resolve) =>
    child.once('close', (code, signal) => {
      children.delete(self);
      resolve({ code, signal });
    }),
  );
  const answers = new Map<number, (answer: FromIngest & { kind: 'answer' }) => void>();
  let lastId = 0;
  const isRunning = Promise.withResolvers<void>();
  const atStep = Promise.withResolvers<void>();
  child.on('message', (message: FromIngest) => {
    if (message.kind === 'running') isRunning.resolve();
    else if (message.kind === 'at_step') atStep.resolve();
    else answers.get(message.id)?.(message);
  });
  void exited.then(({ code, signal }) => {
    const error = new Error(`the ingest process ended (${code ?? signal}): ${log.slice(-2_000)}`);
    isRunning.reject(error);
    atStep.reject(error);
    for (const answer of answers.values()) answer({ kind: 'answer', id: 0, error: error.message });
    return undefined;
  });
  isRunning.promise.catch(() => {});
  atStep.promise.catch(() => {});
  const self: IngestChild = {
    pid: child.pid!,
    log: () => log,
    running: isRunning.promise,
    atStep: atStep.promise,
    exited,
    hasEnded: () => child.exitCode !== null || child.signalCode !== null,
    reader: {
      read: async ({ signal: _, ...read }) => {
        const id = ++lastId;
        const { promise, resolve } = Promise.withResolvers<FromIngest & { kind: 'answer' }>();
        answers.set(id, resolve);
        child.send({ kind: 'read', id, read } satisfies ToIngest, () => {});
        const { body, error } = await promise;
        answers.delete(id);
        if (error !== undefined) throw new Error(error);
        return { body: Buffer.from(body!, 'utf8'), readRows: undefined, readBytes: undefined };
      },
    },
    release: () => {
      child.send({ kind: 'release' } satisfies ToIngest, () => {});
    },
    setClock: (aheadMs) => {
      child.send({ kind: 'clock', aheadMs } satisfies ToIngest, () => {});
    },
    signal: (signal) => {
      child.kill(signal);
    },
    stop: async () => {
      const since = performance.now();
      child.kill('SIGTERM');
      return { ...(await exited), tookMs: performance.now() - since };
    },
  };
  children.add(self);
  return self;
}

/** For afterEach: nothing outlives its test, whatever became of it. */
export async function endIngestChildren(): Promise<void> {
  await Promise.all(
    [...children].map(async (child) => {
      child.signal('SIGKILL');
      await child.exited;
    }),
  );
}

/** Log lines with this event. */
export function logged(child: IngestChild, event: string): Record<string, unknown>[] {
  return child
    .log()
    .split('\n')
    .filter((line) => line.includes(`"${event}"`))
    .map((line) => JSON.parse(line) as Record<string, unknown>);
}

export async function waitForLog(
  child: IngestChild,
  event: string,
  deadlineMs: number,
): Promise<Record<string, unknown>> {
  return waitFor(() => logged(child, event)[0], deadlineMs, `log line ${event}`);
}
