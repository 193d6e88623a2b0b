-- How far a consumer is: rows of all raw tables (equals stored_rows, without reading a row), dead letters; and for edge events the rollups beside what the raw table says
-- they have to hold. Rows: 1.
SELECT
    toFloat64((SELECT sum(total_rows) FROM system.tables WHERE database = currentDatabase() AND name IN ('edge_logs', 'postgres_logs', 'function_edge_logs', 'function_logs', 'auth_logs', 'realtime_logs', 'storage_logs', 'postgrest_logs', 'pgbouncer_logs'))) AS stored,
    toFloat64((SELECT count() FROM dead_letters)) AS dead_lettered
