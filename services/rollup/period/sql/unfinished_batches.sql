-- Batches with rows in a period that the ledger lacks, and replays of dead letters with a row in it that are not done: their views may still be filled.
-- A batch of a finished incarnation does not count: nobody completes what a former owner sent too late.
-- Parameters: source (the raw table), period (unix seconds). At most 100 rows of each kind.
WITH held AS
(
    SELECT DISTINCT kafka_topic AS topic, kafka_incarnation AS incarnation, kafka_partition AS partition, batch_last AS last
    FROM {source:Identifier}
    WHERE period = toDateTime({period:UInt32}, 'UTC')
)
SELECT topic, incarnation, partition, last
FROM held
WHERE (topic, incarnation, partition, last) NOT IN
(
    SELECT topic, incarnation, partition, last
    FROM batches
    WHERE (topic, incarnation, partition, last) IN (SELECT topic, incarnation, partition, last FROM held)
)
    AND (topic, partition, incarnation) NOT IN
    (
        SELECT held.topic, held.partition, held.incarnation
        FROM held
        INNER JOIN (SELECT topic, partition, max(incarnation) AS present FROM batches GROUP BY topic, partition) AS lives USING (topic, partition)
        WHERE held.incarnation < lives.present
    )
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
