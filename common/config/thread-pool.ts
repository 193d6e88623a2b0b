/**
 * Every statement of the embedded engine holds one thread of libuv's pool while it runs, and the pool also serves file
 * access, DNS and compression. With its default of 4 threads, four slow reads would stop all inserts. libuv reads the
 * variable when the pool is first used. Setting it while modules load is early enough (checked: 10 statements of 1 s
 * ran in 1.0 s; set after a first file access, in 3.0 s). An empty value would be one thread.
 */
export const THREAD_POOL_SIZE = Number(
  // a slot's query needs a thread, and 12 are for the writes, other reads and files
  (process.env['UV_THREADPOOL_SIZE'] ||= String(Math.max(16, 12 + (Number(process.env['QUERY_CONCURRENCY']) || 0)))),
);
