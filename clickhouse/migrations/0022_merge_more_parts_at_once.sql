-- Merges of the raw tables take ten parts where the default takes five (0021 kept to it because of memory): a row is written again less often, 16 -> 9 us of
-- CPU an edge event. The memory of a merge is a granule of each of its parts: see index_granularity_bytes in common/clickhouse/engine/config.xml.
ALTER TABLE edge_logs MODIFY SETTING merge_selector_base = 10;
ALTER TABLE function_edge_logs MODIFY SETTING merge_selector_base = 10;
ALTER TABLE postgres_logs MODIFY SETTING merge_selector_base = 10;
ALTER TABLE function_logs MODIFY SETTING merge_selector_base = 10;
ALTER TABLE auth_logs MODIFY SETTING merge_selector_base = 10;
ALTER TABLE realtime_logs MODIFY SETTING merge_selector_base = 10;
ALTER TABLE storage_logs MODIFY SETTING merge_selector_base = 10;
ALTER TABLE postgrest_logs MODIFY SETTING merge_selector_base = 10;
ALTER TABLE pgbouncer_logs MODIFY SETTING merge_selector_base = 10;
