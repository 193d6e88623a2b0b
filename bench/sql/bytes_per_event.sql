-- What events take on disk, with all columns, keys and indexes. Rows: one per source that has events.
SELECT table, sum(bytes_on_disk) / sum(rows) AS bytes
FROM system.parts
WHERE active AND database = currentDatabase() AND table IN ('edge_logs', 'postgres_logs', 'function_edge_logs', 'function_logs', 'auth_logs', 'realtime_logs', 'storage_logs', 'postgrest_logs', 'pgbouncer_logs')
GROUP BY table
ORDER BY table
