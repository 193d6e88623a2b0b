-- Partitions that are paused now, as ingest sees it (its paused_partitions.sql). Reads paused_partitions; one row per partition.
WITH
    toUnixTimestamp64Milli(until) AS end,
    end - toUnixTimestamp64Milli(now64(3, 'UTC')) AS rest
SELECT topic, partition, bad, messages, formatDateTime(until, '%Y-%m-%dT%H:%i:%SZ', 'UTC') AS paused_until
FROM paused_partitions FINAL
WHERE rest > 0 AND rest <= 2 * (end - toUnixTimestamp64Milli(paused_at))
ORDER BY topic, partition
