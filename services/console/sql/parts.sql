-- Active parts of the fullest partition of each table. Reads system.parts; one row per table.
SELECT table, max(parts) AS parts
FROM (SELECT table, partition_id, count() AS parts FROM system.parts WHERE database = currentDatabase() AND active GROUP BY table, partition_id)
GROUP BY table
ORDER BY table
