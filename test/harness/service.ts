import { spawn, type ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { COMPILE_CACHE } from './compile-cache.ts';
import { waitFor } from './wait-for.ts';

const running = new Set<ChildProcess>();

/** Ends what a test left running. Throws an error if something was started meanwhile: it would outlive the tests. */
export async function endAll(): Promise<void> {
  await Promise.all(
    [...running].map(
      (child) =>
        new Promise<void>((resolve) => {
          child.once('close', () => resolve());
          child.kill('SIGTERM');
        }),
    ),
  );
  if (running.size > 0) throw new Error(`${running.size} services were started while all were ended`);
}

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

export interface Service {
  /** of npm itself; the service is its child */
  readonly pid: number;
  readonly child: ChildProcess;
  stdout(): string;
  stderr(): string;
  /** exit code of npm, once it ended */
  readonly exited: Promise<number | null>;
  /** Sends the signal to npm's own process only and waits for its end. */
  end(signal?: NodeJS.Signals): Promise<number | null>;
}

/** `npm run <script>` with only these settings from the environment, as an operator starts it. */
export function startScript(
  script: string,
  settings: Readonly<Record<string, string>>,
  args: readonly string[] = [],
): Service {
  const inherited = Object.fromEntries(
    ['PATH', 'HOME', 'XDG_CACHE_HOME', 'TMPDIR', 'LANG'].flatMap((name) =>
      process.env[name] === undefined ? [] : [[name, process.env[name]]],
    ),
  );
  const child = spawn('npm', ['run', '--silent', script, '--', ...args], {
    cwd: ROOT,
    env: { ...inherited, ...COMPILE_CACHE, ...settings },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let stdout = '';
  let stderr = '';
  child.stdout.on('data', (chunk: Buffer) => {
    stdout += chunk.toString('utf8');
  });
  child.stderr.on('data', (chunk: Buffer) => {
    stderr += chunk.toString('utf8');
  });
  running.add(child);
  const exited = new Promise<number | null>((resolve) => {
    child.once('close', (code) => {
      running.delete(child);
      resolve(code);
    });
  });
  return {
    pid: child.pid!,
    child,
    stdout: () => stdout,
    stderr: () => stderr,
    exited,
    end: (signal = 'SIGTERM') => {
      child.kill(signal);
      return exited;
    },
  };
}

export interface RunningSluice extends Service {
  readonly address: string;
  readonly key: string;
  /** GET of an endpoint by name; the rows */
  ask(endpoint: string, params: Readonly<Record<string, string>>): Promise<Record<string, unknown>[]>;
}

/** `npm start`, ready. */
export async function startSluice(
  settings: Readonly<Record<string, string>> & { readonly API_KEY: string },
): Promise<RunningSluice> {
  const service = startScript('start', settings);
  let ended: number | null | undefined;
  service.child.once('close', (code) => {
    ended = code;
  });
  const address = await waitFor(
    () => {
      if (ended !== undefined) throw new Error(`ended with ${ended}: ${service.stderr()}`);
      return /sluice is ready at (\S+)/.exec(service.stdout())?.[1];
    },
    40_000,
    'npm start is ready',
  );
  const key = settings.API_KEY;
  return {
    ...service,
    address,
    key,
    ask: async (endpoint, params) => {
      const response = await fetch(`${address}/api/endpoints/${endpoint}?${new URLSearchParams(params).toString()}`, {
        headers: { 'x-api-key': key },
      });
      const body = (await response.json()) as { result?: Record<string, unknown>[]; error?: unknown };
      if (body.result === undefined) throw new Error(`${endpoint}: ${response.status} ${JSON.stringify(body.error)}`);
      return body.result;
    },
  };
}
