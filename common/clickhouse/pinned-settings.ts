import type { StatementSettings } from './clickhouse.ts';

/**
 * Every setting that the meaning of a statement depends on, with our value. A server's profile may set any of them for
 * our user, and versions differ in their defaults. So a server gets them with every statement, and the statement's own
 * settings take precedence. The embedded engine has no profile: it takes two of these tables (embedded/embedded.ts),
 * and embedded/sessions.ts has the rest. A setting of these tables that a version does not know is left out; any other
 * unknown one is an error. Only the numbers that bound a statement (memory, threads of reads) are the operator's
 * choice, unless a table here sets them.
 */

/**
 * An answer is whole: nothing filters or shortens it. Limits are off; what exceeds one that a statement sets itself is
 * an error. Every version knows these: our own questions to a server carry them before its settings are known.
 */
export const wholeAnswer = {
  use_query_cache: 0,
  additional_table_filters: '{}',
  additional_result_filter: '',
  // a count of nothing is 0
  empty_result_for_aggregation_by_empty_set: 0,
  limit: 0,
  offset: 0,
  extremes: 0,
  max_execution_time: 0,
  timeout_overflow_mode: 'throw',
  max_execution_time_leaf: 0,
  max_rows_to_read: 0,
  max_bytes_to_read: 0,
  read_overflow_mode: 'throw',
  max_rows_to_read_leaf: 0,
  max_bytes_to_read_leaf: 0,
  max_rows_to_group_by: 0,
  max_rows_to_sort: 0,
  max_bytes_to_sort: 0,
  max_rows_in_distinct: 0,
  max_bytes_in_distinct: 0,
  max_rows_in_set: 0,
  max_bytes_in_set: 0,
  max_rows_in_join: 0,
  max_bytes_in_join: 0,
  max_result_rows: 0,
  max_result_bytes: 0,
  result_overflow_mode: 'throw',
  max_rows_to_transfer: 0,
  max_bytes_to_transfer: 0,
  min_execution_speed: 0,
  max_partitions_to_read: -1,
  max_columns_to_read: 0,
  max_temporary_columns: 0,
  max_temporary_non_const_columns: 0,
  max_subquery_depth: 100,
  max_ast_depth: 1_000,
  max_ast_elements: 50_000,
  max_expanded_ast_elements: 500_000,
  max_parser_depth: 1_000,
} as const satisfies StatementSettings;

/** How a text is parsed and values are converted: for every statement. */
const EVERY_STATEMENT = {
  // first: it undoes what a profile's `compatibility` has changed
  compatibility: '',
  session_timezone: 'UTC',
  enable_analyzer: 1,
  enable_global_with_statement: 1,
  prefer_column_name_to_alias: 0,
  enable_positional_arguments: 1,
  union_default_mode: '',
  except_default_mode: 'ALL',
  intersect_default_mode: 'ALL',
  join_use_nulls: 0,
  join_default_strictness: 'ALL',
  any_join_distinct_right_table_keys: 0,
  group_by_use_nulls: 0,
  transform_null_in: 0,
  aggregate_functions_null_for_empty: 0,
  cast_keep_nullable: 0,
  cast_string_to_date_time_mode: 'best_effort',
  date_time_input_format: 'best_effort',
  date_time_overflow_behavior: 'ignore',
  enable_extended_results_for_datetime_functions: 0,
  precise_float_parsing: 1,
  decimal_check_overflow: 1,
  short_circuit_function_evaluation: 'enable',
  final: 0,
  do_not_merge_across_partitions_select_final: 0,
  enable_named_columns_in_function_tuple: 0,
  count_distinct_implementation: 'uniqExact',
  // no statement is refused for what it reads, or for the replica that it reads
  force_primary_key: 0,
  force_index_by_date: 0,
  force_optimize_skip_unused_shards: 0,
  force_optimize_projection: 0,
  force_optimize_projection_name: '',
  select_sequential_consistency: 0,
  skip_unavailable_shards: 0,
  // what a statement reads twice of a shard comes from one replica: another one may lag behind it, and a hedged request
  // turns to that one after 50 ms
  load_balancing: 'in_order',
  use_hedged_requests: 0,
  prefer_localhost_replica: 1,
  // a subquery or a join of two tables that read all shards sees all shards on both sides
  distributed_product_mode: 'global',
  distributed_group_by_no_merge: 0,
  enable_parallel_replicas: 0,
  max_query_size: 1_048_576,
  // rows and bytes of one step: a profile with tiny ones would make a statement take a thousand times as long
  max_block_size: 65_409,
  preferred_block_size_bytes: 1_000_000,
  ...wholeAnswer,
} as const satisfies StatementSettings;

/** The form of an answer. */
const READS = {
  bool_true_representation: 'true',
  bool_false_representation: 'false',
  date_time_output_format: 'simple',
  date_time_64_output_format_cut_trailing_zeros_align_to_groups_of_thousands: 0,
  format_tsv_null_representation: '\\N',
  output_format_tsv_crlf_end_of_line: 0,
  output_format_decimal_trailing_zeros: 0,
  output_format_float_precision: 0,
  output_format_json_quote_64bit_integers: 0,
  output_format_json_quote_64bit_floats: 0,
  output_format_json_quote_decimals: 0,
  output_format_json_quote_denormals: 0,
  output_format_json_array_of_rows: 0,
  output_format_json_escape_forward_slashes: 1,
  output_format_json_map_as_array_of_tuples: 0,
  output_format_json_named_tuples_as_objects: 1,
  output_format_json_skip_null_value_in_named_tuples: 0,
  output_format_json_validate_utf8: 0,
  output_format_json_pretty_print: 1,
  output_format_write_statistics: 1,
  show_table_uuid_in_table_create_query_if_not_nil: 0,
  show_create_query_identifier_quoting_rule: 'when_necessary',
} as const satisfies StatementSettings;

/** What is created and stored: DDL, and inserts from our tables. */
const WRITES = {
  // a table that somebody else has made is an error
  create_if_not_exists: 0,
  async_insert: 0,
  insert_deduplicate: 1,
  // 'enable' takes precedence over a statement's insert_deduplicate = 0 (26.7)
  deduplicate_insert: 'backward_compatible_choice',
  deduplicate_insert_select: 'enable_when_possible',
  deduplicate_blocks_in_dependent_materialized_views: 1,
  update_insert_deduplication_token_in_dependent_materialized_views: 0,
  materialized_views_ignore_errors: 0,
  ignore_materialized_views_with_dropped_target_table: 0,
  parallel_view_processing: 0,
  // views of rollups do not group: the insert merges what they make
  optimize_on_insert: 1,
  max_partitions_per_insert_block: 0,
  max_insert_block_size: 1_048_449,
  min_insert_block_size_rows: 1_048_449,
  min_insert_block_size_bytes: 268_402_944,
  min_insert_block_size_rows_for_materialized_views: 0,
  min_insert_block_size_bytes_for_materialized_views: 0,
  data_type_default_nullable: 0,
  flatten_nested: 1,
  default_table_engine: 'MergeTree',
  default_normal_view_sql_security: 'INVOKER',
  default_materialized_view_sql_security: 'DEFINER',
  alter_sync: 1,
  mutations_sync: 1,
} as const satisfies StatementSettings;

/**
 * Settings of an insert that counts once: the same token in every table and view, however often and by whomever. It is
 * one block: everything is read before the first row is written, so an error in it writes nothing.
 */
export const insertSettings = {
  ...WRITES,
  max_insert_threads: 1,
  max_threads: 1,
  max_block_size: 10_000_000,
  max_insert_block_size: 10_000_000,
  max_insert_block_size_rows: 10_000_000,
  max_insert_block_size_bytes: 0,
  // not both 0: 25.8 would then write rows to their table only after its views ran. An audit and a rebuild rely on raw
  // rows existing before what views make of them
  min_insert_block_size_rows: 10_000_000,
  min_insert_block_size_bytes: 0,
  preferred_block_size_bytes: 0,
  input_format_max_block_size_bytes: 0,
  input_format_max_block_wait_ms: 0,
  input_format_connection_handling: 0,
  input_format_parallel_parsing: 0,
  input_format_allow_errors_num: 0,
  input_format_allow_errors_ratio: 0,
  input_format_defaults_for_omitted_fields: 1,
  input_format_null_as_default: 1,
  format_binary_max_string_size: 1_073_741_824,
  input_format_binary_decode_types_in_binary_format: 0,
  input_format_binary_read_json_as_string: 0,
  input_format_native_decode_types_in_binary_format: 0,
  insert_null_as_default: 1,
  // ClickHouse looks for room once, when an insert begins. If other files take it meanwhile, the insert succeeds and
  // its part is cut short. This room comes on top of a disk's keep_free_space_bytes, so merges and retention, which
  // need some too, can still work when inserts wait
  min_free_disk_bytes_to_perform_insert: 268_435_456,
  // planning is most of what a small batch costs, and these two would take a third of it for nothing: there is nothing
  // to reorder, and no chain of comparisons to infer from
  optimize_and_compare_chain: 0,
  query_plan_enable_optimizations: 0,
} as const satisfies StatementSettings;

/**
 * Settings of a read of a few granules of many parts (`Read.fewRows`). Its plan costs more than its rows, so it omits
 * optimizations that pay off only with many rows. Measured on answers of 20 ms from rollups: views inlined into the
 * query tree instead of planned separately, 4 ms; the index read on the query's own thread instead of one job per part,
 * 1 ms; columns read in one pass instead of one per condition, 2 ms; no second search for unused columns after the
 * analysis, 1 ms. A scan of ten million rows took an eighth longer without a PREWHERE; an explicit one still applies.
 */
export const fewRowsSettings = {
  max_threads_for_indexes: 1,
  optimize_move_to_prewhere: 0,
  analyzer_inline_views: 1,
  query_plan_remove_unused_columns: 0,
} as const satisfies StatementSettings;

/** What is sent beside EVERY_STATEMENT: with reads, with inserts of data, and with every other statement. */
const BY_KIND = {
  read: READS,
  'read of few rows': { ...READS, ...fewRowsSettings },
  insert: insertSettings,
  write: WRITES,
} as const satisfies Readonly<Record<string, StatementSettings>>;

/** Returns the settings that the engine knows, by the names of all that it knows. */
export function knownSettings(settings: StatementSettings, known: ReadonlySet<string>): StatementSettings {
  return Object.fromEntries(Object.entries(settings).filter(([name]) => known.has(name)));
}

/** Returns the settings sent with every statement of a kind. The statement's own settings take precedence. */
export function pinnedSettings(kind: keyof typeof BY_KIND, known: ReadonlySet<string>): StatementSettings {
  return knownSettings({ ...EVERY_STATEMENT, ...BY_KIND[kind] }, known);
}
