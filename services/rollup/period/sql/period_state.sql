-- What a raw table holds of a period: how many rows, and a fingerprint of which batches they are of. Parameters: source, period (unix seconds). One row.
SELECT sum(batch_rows) AS rows, toString(groupBitXor(sipHash64(topic, incarnation, partition, last, batch_rows))) AS fingerprint
FROM
(
    SELECT kafka_topic AS topic, kafka_incarnation AS incarnation, kafka_partition AS partition, batch_last AS last, count() AS batch_rows
    FROM {source:Identifier}
    WHERE period = toDateTime({period:UInt32}, 'UTC')
    GROUP BY topic, incarnation, partition, last
)
