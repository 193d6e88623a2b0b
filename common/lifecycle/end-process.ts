/**
 * Ends this process at once with an exit code, whatever its native threads do. `process.exit` waits for them: for
 * libuv's pool, in which the embedded
 * engine runs its statements, and for what the engine itself does at the end. So another program takes the place of
 * this one, and every thread is gone.
 */
export function endProcess(code: number): never {
  // said at once, before the other program begins
  process.removeAllListeners('warning');
  try {
    process.execve?.(process.execPath, [process.execPath, '--eval', `process.exit(${code})`], {});
  } catch {
    // no such thing here: then without the exit code
  }
  process.kill(process.pid, 'SIGKILL');
  return process.exit(code);
}
