-- Columns of a table that are stored from what is inserted. Parameters: table. One row per column, in order.
SELECT name
FROM system.columns
WHERE database = currentDatabase() AND table = {table:String} AND default_kind NOT IN ('MATERIALIZED', 'ALIAS', 'EPHEMERAL')
ORDER BY position
