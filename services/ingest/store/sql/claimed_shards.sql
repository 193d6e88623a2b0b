-- The shards that first claims name. No parameters. One row per shard; reads partition_owners.
SELECT DISTINCT shard
FROM
(
    SELECT argMin(shard, epoch) AS shard
    FROM partition_owners
    GROUP BY topic, partition
)
ORDER BY shard
