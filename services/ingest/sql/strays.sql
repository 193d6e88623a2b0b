-- Rows and dead letters of one partition at or after an offset: what a batch wrote that is not in the ledger. One row per batch, ascending.
-- Parameters: source (the raw table), topic, partition, incarnation, from, judged_since (unix ms). judged_at prunes parts by its minmax index.
SELECT
    batch_last AS last,
    toUnixTimestamp64Milli(judged_at) AS judged_at,
    arraySort(groupArray(kafka_offset)) AS offsets,
    arraySort(groupArrayIf(kafka_offset, is_dead)) AS dead_letters
FROM
(
    SELECT batch_last, judged_at, kafka_offset, false AS is_dead
    FROM {source:Identifier}
    WHERE judged_at > fromUnixTimestamp64Milli({judged_since:Int64}, 'UTC')
        AND kafka_topic = {topic:String} AND kafka_partition = {partition:UInt32} AND kafka_incarnation = {incarnation:UInt32} AND kafka_offset >= {from:UInt64}
    UNION ALL
    SELECT batch_last, judged_at, kafka_offset, true AS is_dead
    FROM dead_letters
    WHERE judged_at > fromUnixTimestamp64Milli({judged_since:Int64}, 'UTC')
        AND kafka_topic = {topic:String} AND kafka_partition = {partition:UInt32} AND kafka_incarnation = {incarnation:UInt32} AND kafka_offset >= {from:UInt64}
)
GROUP BY last, judged_at
ORDER BY last, judged_at
