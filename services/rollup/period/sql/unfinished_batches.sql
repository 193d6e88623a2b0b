-- Batches with rows in a period that the ledger has not reached yet, and replays of dead letters with a row in it that are not done: their views may still
-- be filled. A batch that the ledger has passed over does not count: nobody completes what a former owner sent too late.
-- Parameters: source (the raw table), period (unix seconds). At most 100 rows of each kind.
WITH held AS
(
    SELECT DISTINCT kafka_topic AS topic, kafka_incarnation AS incarnation, kafka_partition AS partition, batch_last AS last
    FROM {source:Identifier}
    WHERE period = toDateTime({period:UInt32}, 'UTC')
)
SELECT held.topic AS topic, held.incarnation AS incarnation, held.partition AS partition, held.last AS last
FROM held
LEFT JOIN
(
    SELECT topic, partition, true AS is_known, max((incarnation, last)) AS ledger_end
    FROM batches
    WHERE topic IN (SELECT topic FROM held)
    GROUP BY topic, partition
) AS ends USING (topic, partition)
WHERE NOT is_known OR (held.incarnation, held.last) > ledger_end
LIMIT 100
UNION ALL
SELECT kafka_topic, kafka_incarnation, kafka_partition, kafka_offset
FROM {source:Identifier}
WHERE period = toDateTime({period:UInt32}, 'UTC')
    AND (kafka_topic, kafka_incarnation, kafka_partition, kafka_offset) IN
    (
        SELECT kafka_topic, kafka_incarnation, kafka_partition, kafka_offset
        FROM dead_letter_replays
        GROUP BY kafka_topic, kafka_incarnation, kafka_partition, kafka_offset
        HAVING NOT max(done)
    )
LIMIT 100
