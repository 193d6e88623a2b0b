-- Partitions with rows. Parameters: tables. One row per table and partition, ascending.
--   starts_at: unix seconds of the day or period that the partition holds
SELECT DISTINCT
    table,
    partition_id,
    toUnixTimestamp(parseDateTimeBestEffort(partition, 'UTC')) AS starts_at
FROM system.parts
WHERE database = currentDatabase() AND active AND rows > 0 AND table IN {tables:Array(String)}
ORDER BY table, starts_at
