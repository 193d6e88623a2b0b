-- Marks a dead letter as replayed, as its replay was announced. Parameters: topic, incarnation, partition, offset. Writes one row; marked twice is marked once.
INSERT INTO dead_letter_replays (kafka_topic, kafka_incarnation, kafka_partition, kafka_offset, done, evaluated_at, rules, period, timestamp)
SELECT kafka_topic, kafka_incarnation, kafka_partition, kafka_offset, true, evaluated_at, rules, period, timestamp
FROM dead_letter_replays
WHERE kafka_topic = {topic:String} AND kafka_incarnation = {incarnation:UInt32} AND kafka_partition = {partition:UInt32} AND kafka_offset = {offset:UInt64} AND NOT done
ORDER BY replayed_at, evaluated_at
LIMIT 1
