/**
 * Every statement of the embedded engine holds one thread of libuv's pool while it runs, and the pool also serves file
 * access, DNS and compression. With its default of 4 threads, four slow reads would stop all inserts. libuv reads the
 * variable when the pool is first used. Setting it while modules load is early enough (checked: 10 statements of 1 s
 * ran in 1.0 s; set after a first file access, in 3.0 s).
 */
export const THREAD_POOL_SIZE = Number((process.env['UV_THREADPOOL_SIZE'] ??= '16'));
