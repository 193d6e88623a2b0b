-- The last pause of each partition, or of one. Parameters: topic ('' = all), partition. leftMs: until it goes on, 0 = it does already. Reads paused_partitions.
SELECT
    topic, partition, incarnation, next, bad, messages,
    formatDateTime(until, '%Y-%m-%dT%H:%i:%SZ', 'UTC') AS pausedUntil,
    greatest(0, toUnixTimestamp64Milli(until) - toUnixTimestamp64Milli(now64(3, 'UTC'))) AS leftMs
FROM paused_partitions FINAL
WHERE {topic:String} = '' OR (topic = {topic:String} AND partition = {partition:UInt32})
ORDER BY topic, partition
