-- Dead letters in the order of their coordinates.
-- Parameters: topic and reason ('' = any), open (only those not replayed), limit, after_* (where the page before ended).
-- Reads dead_letters in its sorting order, without the values; at most `limit` rows.
SELECT
    d.kafka_topic AS topic, d.kafka_incarnation AS incarnation, d.kafka_partition AS partition, d.kafka_offset AS offset,
    d.reason AS reason, d.detail AS detail,
    if(r.replayed_at = toDateTime64(0, 3, 'UTC'), NULL, formatDateTime(r.replayed_at, '%Y-%m-%dT%H:%i:%SZ', 'UTC')) AS replayed_at
FROM dead_letters AS d
LEFT ANY JOIN (SELECT * FROM dead_letter_replays WHERE done) AS r USING (kafka_topic, kafka_incarnation, kafka_partition, kafka_offset)
WHERE ({topic:String} = '' OR d.kafka_topic = {topic:String})
    AND ({reason:String} = '' OR d.reason = {reason:String})
    AND (NOT {open:Bool} OR r.replayed_at = toDateTime64(0, 3, 'UTC'))
    AND (d.kafka_topic, d.kafka_incarnation, d.kafka_partition, toInt64(d.kafka_offset)) > ({after_topic:String}, {after_incarnation:UInt32}, {after_partition:UInt32}, {after_offset:Int64})
ORDER BY topic, incarnation, partition, offset
LIMIT {limit:UInt32}
