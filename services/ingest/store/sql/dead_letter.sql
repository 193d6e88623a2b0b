-- One message that is a dead letter with its bytes in hexadecimal digits. Parameters: topic, partition, offset, incarnation (NULL = the last life of the topic that has one there). One row.
SELECT
    source, kafka_topic AS topic, kafka_incarnation AS incarnation, kafka_partition AS partition, kafka_offset AS offset, batch_last, record_time, reason, detail,
    if(isNull(key), NULL, hex(assumeNotNull(key))) AS key,
    arrayMap(h -> (h.1, if(isNull(h.2), NULL, hex(assumeNotNull(h.2)))), headers) AS headers,
    hex(value) AS value
FROM dead_letters
WHERE kafka_topic = {topic:String} AND kafka_partition = {partition:UInt32} AND kafka_offset = {offset:UInt64}
    AND (isNull({incarnation:Nullable(UInt32)}) OR kafka_incarnation = {incarnation:Nullable(UInt32)})
ORDER BY kafka_incarnation DESC
LIMIT 1
