import type { ServerVersion } from './clickhouse-library.ts';

/** `hostile`: the server's profile changes, for our user, what a statement means wherever a setting can. */
export type Profile = 'plain' | 'hostile';

/** Settings of a profile by name; with `since`, for servers from that version on, which know them. */
type Setting = string | number | { readonly value: string | number; readonly since: ServerVersion };

const HOSTILE: Readonly<Record<string, Setting>> = {
  // what makes an insert with a token count once
  insert_deduplicate: 0,
  deduplicate_blocks_in_dependent_materialized_views: 0,
  deduplicate_insert: { value: 'disable', since: '26.7' },
  deduplicate_insert_select: { value: 'disable', since: '26.7' },
  async_insert: 1,
  wait_for_async_insert: 0,
  // what makes it one block
  max_insert_block_size: 3,
  max_block_size: 3,
  min_insert_block_size_rows: 1,
  min_insert_block_size_bytes: 1,
  input_format_max_block_size_bytes: 100,
  preferred_block_size_bytes: 100,
  max_partitions_per_insert_block: 1,
  max_insert_threads: 4,
  max_threads: 4,
  parallel_view_processing: 1,
  optimize_on_insert: 0,
  input_format_parallel_parsing: 1,
  min_chunk_bytes_for_parallel_parsing: 1_000,
  input_format_native_allow_types_conversion: 0,
  input_format_native_decode_types_in_binary_format: 1,
  materialized_views_ignore_errors: 1,
  // what an answer looks like
  session_timezone: 'Asia/Kathmandu',
  date_time_output_format: 'unix_timestamp',
  output_format_json_quote_64bit_integers: 1,
  output_format_json_quote_64bit_floats: 1,
  output_format_json_quote_decimals: 1,
  output_format_json_quote_denormals: 1,
  output_format_json_array_of_rows: 1,
  output_format_json_named_tuples_as_objects: 0,
  output_format_json_escape_forward_slashes: 0,
  output_format_json_map_as_array_of_tuples: 1,
  output_format_json_skip_null_value_in_named_tuples: 1,
  output_format_write_statistics: 0,
  output_format_tsv_crlf_end_of_line: 1,
  format_tsv_null_representation: 'nothing',
  output_format_float_precision: { value: 1, since: '26.7' },
  show_create_query_identifier_quoting_rule: 'always',
  bool_true_representation: 'yes',
  bool_false_representation: 'no',
  extremes: 1,
  // what it is computed from
  join_use_nulls: 1,
  group_by_use_nulls: 1,
  transform_null_in: 1,
  aggregate_functions_null_for_empty: 1,
  empty_result_for_aggregation_by_empty_set: 1,
  union_default_mode: 'DISTINCT',
  cast_keep_nullable: 1,
  prefer_column_name_to_alias: 1,
  enable_positional_arguments: 0,
  precise_float_parsing: 0,
  date_time_input_format: 'best_effort_us',
  date_time_overflow_behavior: 'saturate',
  final: 1,
  do_not_merge_across_partitions_select_final: 1,
  enable_named_columns_in_function_tuple: 1,
  enable_global_with_statement: 0,
  count_distinct_implementation: 'uniq',
  additional_table_filters: "{'system.settings':'0','batches':'0','edge_logs':'0'}",
  use_query_cache: 1,
  query_cache_min_query_duration: 0,
  query_cache_nondeterministic_function_handling: 'save',
  // what cuts it
  limit: 2,
  max_result_rows: 3,
  max_result_bytes: 10,
  result_overflow_mode: 'break',
  max_rows_to_read: 5,
  max_bytes_to_read: 50,
  read_overflow_mode: 'break',
  max_rows_to_read_leaf: 5,
  max_bytes_to_read_leaf: 50,
  read_overflow_mode_leaf: 'break',
  max_rows_to_group_by: 2,
  group_by_overflow_mode: 'any',
  max_rows_in_set: 2,
  set_overflow_mode: 'break',
  max_rows_in_distinct: 2,
  distinct_overflow_mode: 'break',
  max_execution_time: 1,
  timeout_overflow_mode: 'break',
  max_execution_time_leaf: 1,
  timeout_overflow_mode_leaf: 'break',
  // what is refused
  force_primary_key: 1,
  force_index_by_date: 1,
  force_optimize_skip_unused_shards: 2,
  force_optimize_projection: 1,
  force_optimize_projection_name: 'none',
  select_sequential_consistency: 1,
  load_balancing: 'random',
  use_hedged_requests: 1,
  prefer_localhost_replica: 0,
  min_execution_speed: 1_000_000_000,
  timeout_before_checking_execution_speed: 1,
  max_columns_to_read: 1,
  max_temporary_columns: 2,
  max_temporary_non_const_columns: 1,
  max_partitions_to_read: 1,
  max_subquery_depth: 1,
  max_ast_elements: 30,
  max_ast_depth: 10,
  max_expanded_ast_elements: 10,
  max_parser_depth: 20,
  format_binary_max_string_size: 10,
  // what is made
  create_if_not_exists: 1,
  show_table_uuid_in_table_create_query_if_not_nil: 1,
  data_type_default_nullable: 1,
  flatten_nested: 0,
  default_table_engine: 'Log',
  send_progress_in_http_headers: 1,
  http_write_exception_in_output_format: 1,
};

/** What the profile sets on a server of that version. */
export function profileSettings(profile: Profile, version: ServerVersion): Readonly<Record<string, string | number>> {
  if (profile === 'plain') return {};
  return Object.fromEntries(
    Object.entries(HOSTILE).flatMap(([name, setting]) => {
      if (typeof setting !== 'object') return [[name, setting]];
      return version >= setting.since ? [[name, setting.value]] : [];
    }),
  );
}
