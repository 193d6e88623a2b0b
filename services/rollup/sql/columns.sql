-- Columns of tables, in order. Parameters: tables. One row per table and column.
SELECT table, name, type
FROM system.columns
WHERE database = currentDatabase() AND table IN {tables:Array(String)}
ORDER BY table, position
