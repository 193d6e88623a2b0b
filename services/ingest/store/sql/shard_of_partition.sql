-- The shard of a partition of Kafka, by its first claim. Parameters: topic, partition. One row; none if nobody has claimed it.
SELECT shard
FROM partition_owners
WHERE topic = {topic:String} AND partition = {partition:UInt32}
ORDER BY epoch
LIMIT 1
