-- How many replicas a table has by Keeper, with those that are down. Parameters: table. Reads system.replicas; one row.
SELECT total_replicas AS replicas
FROM system.replicas
WHERE database = currentDatabase() AND table = {table:String}
