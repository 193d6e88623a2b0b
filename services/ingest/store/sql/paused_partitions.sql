-- The last pause of each partition, or of one. Parameters: topic ('' = all), partition. leftMs: until it goes on, 0 = it does already. Reads paused_partitions.
-- If more than twice its length is left, the server's clock was set back after the pause began: the pause is over.
WITH
    toUnixTimestamp64Milli(until) AS end,
    end - toUnixTimestamp64Milli(now64(3, 'UTC')) AS rest
SELECT
    topic, partition, incarnation, next, bad, messages,
    formatDateTime(until, '%Y-%m-%dT%H:%i:%SZ', 'UTC') AS paused_until,
    if(rest > 2 * (end - toUnixTimestamp64Milli(paused_at)), 0, greatest(0, rest)) AS leftMs
FROM paused_partitions FINAL
WHERE {topic:String} = '' OR (topic = {topic:String} AND partition = {partition:UInt32})
ORDER BY topic, partition
