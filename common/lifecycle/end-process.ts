/**
 * Ends this process at once with an exit code, whatever its native threads do. `process.exit` would wait for libuv's
 * pool, where the embedded engine runs its statements, and for the engine's own shutdown. So another program replaces
 * this one, and every thread is gone.
 */
export function endProcess(code: number): never {
  // printed now, before the other program begins
  process.removeAllListeners('warning');
  try {
    process.execve?.(process.execPath, [process.execPath, '--eval', `process.exit(${code})`], {});
  } catch {
    // not available here: end without the exit code
  }
  process.kill(process.pid, 'SIGKILL');
  return process.exit(code);
}
