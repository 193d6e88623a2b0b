-- Sizes of the tables of the database. One row per table that has rows.
--   fullest: the active parts of the partition that has most (the engine slows inserts down at 1,000 and refuses them at 3,000)
SELECT table, max(partition_parts) AS fullest, sum(partition_bytes) AS bytes, sum(partition_rows) AS rows
FROM
(
    SELECT table, partition_id, count() AS partition_parts, sum(bytes_on_disk) AS partition_bytes, sum(p.rows) AS partition_rows
    FROM system.parts AS p
    WHERE database = currentDatabase() AND active
    GROUP BY table, partition_id
)
GROUP BY table
ORDER BY table
