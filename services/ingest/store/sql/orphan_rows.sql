-- Rows and dead letters of one partition at or beyond an offset of one life of the topic, and all of later lives: what a batch wrote that is not in
-- the ledger. One row per batch and moment of evaluation, ascending.
-- Parameters: source (the raw table), topic, partition, incarnation, from, period (unix s). Rows of earlier periods are not read: no batch beyond the
-- ledger's end has any, whatever a clock says. Dead letters are found by their sorting order.
SELECT
    kafka_incarnation AS incarnation,
    batch_last AS last,
    toUnixTimestamp64Milli(evaluated_at) AS evaluatedAt,
    arraySort(groupArrayIf(kafka_offset, NOT is_dead)) AS offsets,
    arraySort(groupArrayIf(kafka_offset, is_dead)) AS deadOffsets,
    if(empty(offsets), NULL, minIf(micros, NOT is_dead)) AS minTimestamp
FROM
(
    SELECT kafka_incarnation, batch_last, evaluated_at, kafka_offset, toUnixTimestamp64Micro(timestamp) AS micros, false AS is_dead
    FROM {source:Identifier}
    WHERE period >= toDateTime({period:UInt32}, 'UTC') AND kafka_topic = {topic:String} AND kafka_partition = {partition:UInt32}
        AND (kafka_incarnation > {incarnation:UInt32} OR (kafka_incarnation = {incarnation:UInt32} AND kafka_offset >= {from:UInt64}))
    UNION ALL
    SELECT kafka_incarnation, batch_last, evaluated_at, kafka_offset, toInt64(0) AS micros, true AS is_dead
    FROM dead_letters
    WHERE kafka_topic = {topic:String} AND kafka_partition = {partition:UInt32}
        AND (kafka_incarnation > {incarnation:UInt32} OR (kafka_incarnation = {incarnation:UInt32} AND kafka_offset >= {from:UInt64}))
)
GROUP BY incarnation, last, evaluatedAt
ORDER BY incarnation, last, evaluatedAt
