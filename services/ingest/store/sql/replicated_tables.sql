-- The replicated tables of the node that is asked. No parameters. One row per table; none without a cluster.
SELECT name
FROM system.tables
WHERE database = currentDatabase() AND startsWith(engine, 'Replicated')
ORDER BY name
