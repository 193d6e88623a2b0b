-- Merges of the raw tables work column after column from the first row on: all columns side by side take up to 370 MB for ten parts of large rows, this 139 MB.
-- Not more than the default's five parts at once (merge_selector_base): with ten a row is written a third less often (13 -> 9 us of CPU an edge event), but
-- their buffers took 100 MB more.
ALTER TABLE edge_logs MODIFY SETTING vertical_merge_algorithm_min_rows_to_activate = 1, vertical_merge_algorithm_min_bytes_to_activate = 0;
ALTER TABLE function_edge_logs MODIFY SETTING vertical_merge_algorithm_min_rows_to_activate = 1, vertical_merge_algorithm_min_bytes_to_activate = 0;
ALTER TABLE postgres_logs MODIFY SETTING vertical_merge_algorithm_min_rows_to_activate = 1, vertical_merge_algorithm_min_bytes_to_activate = 0;
ALTER TABLE function_logs MODIFY SETTING vertical_merge_algorithm_min_rows_to_activate = 1, vertical_merge_algorithm_min_bytes_to_activate = 0;
ALTER TABLE auth_logs MODIFY SETTING vertical_merge_algorithm_min_rows_to_activate = 1, vertical_merge_algorithm_min_bytes_to_activate = 0;
ALTER TABLE realtime_logs MODIFY SETTING vertical_merge_algorithm_min_rows_to_activate = 1, vertical_merge_algorithm_min_bytes_to_activate = 0;
ALTER TABLE storage_logs MODIFY SETTING vertical_merge_algorithm_min_rows_to_activate = 1, vertical_merge_algorithm_min_bytes_to_activate = 0;
ALTER TABLE postgrest_logs MODIFY SETTING vertical_merge_algorithm_min_rows_to_activate = 1, vertical_merge_algorithm_min_bytes_to_activate = 0;
ALTER TABLE pgbouncer_logs MODIFY SETTING vertical_merge_algorithm_min_rows_to_activate = 1, vertical_merge_algorithm_min_bytes_to_activate = 0;
