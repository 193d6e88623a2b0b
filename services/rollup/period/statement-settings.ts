/** Settings of a statement over a whole period: one thread, and spilling to disk instead of growing. */
export const LONG_READ_SETTINGS = {
  max_threads: 1,
  max_memory_usage: 2 * 1024 ** 3,
  max_bytes_before_external_group_by: 512 * 1024 ** 2,
  max_execution_time: 0,
} as const;

/** No deduplication: a side table is filled once, and dropped if that fails. */
export const BUILD_SETTINGS = {
  ...LONG_READ_SETTINGS,
  max_insert_threads: 1,
  insert_deduplicate: 0,
  max_partitions_per_insert_block: 0,
} as const;

/** What is known to be dispensable is dropped whatever its size. */
export const DROP_SETTINGS = { max_table_size_to_drop: 0, max_partition_size_to_drop: 0 } as const;

/** The service's own tables may get the same row again. */
export const WRITE_SETTINGS = { insert_deduplicate: 0 } as const;
