-- Columns of a table, in order. Parameters: table. One row per column.
SELECT name, type
FROM system.columns
WHERE database = currentDatabase() AND table = {table:String}
ORDER BY position
