/**
 * Every statement of the embedded engine holds one thread of libuv's pool while it runs, and the pool also serves file
 * access, DNS and compression.
 * Its default of 4 threads would let four slow reads stop all inserts. libuv reads the variable when the pool is first
 * used; setting it while modules
 * are loaded is early enough (checked: 10 statements of 1 s run in 1.0 s, set after a first file access in 3.0 s).
 */
export const THREAD_POOL_SIZE = Number((process.env['UV_THREADPOOL_SIZE'] ??= '16'));
