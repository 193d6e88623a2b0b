-- Partitions that are paused now. Reads paused_partitions; one row per partition.
SELECT topic, partition, bad, messages, formatDateTime(until, '%Y-%m-%dT%H:%i:%SZ', 'UTC') AS paused_until
FROM paused_partitions FINAL
WHERE until > now64(3, 'UTC')
ORDER BY topic, partition
