-- Batches judged in a period whose rows are in the raw table and that the ledger lacks: their views may still be filled by a retry.
-- Parameters: source (the raw table), from, to (unix seconds). A batch is looked for in the ledger of the period first, then in all of it, because a
-- dead letter that was replayed has the coordinates of its batch and a stamp of its own. At most 100 rows.
WITH
    open AS
    (
        SELECT DISTINCT kafka_topic AS topic, kafka_incarnation AS incarnation, kafka_partition AS partition, batch_last AS last
        FROM {source:Identifier}
        WHERE judged_at >= toDateTime64({from:UInt32}, 3, 'UTC') AND judged_at < toDateTime64({to:UInt32}, 3, 'UTC')
            AND (kafka_topic, kafka_incarnation, kafka_partition, batch_last) NOT IN
            (
                SELECT topic, incarnation, partition, last
                FROM batches
                WHERE judged_at >= toDateTime64({from:UInt32}, 3, 'UTC') AND judged_at < toDateTime64({to:UInt32}, 3, 'UTC')
            )
    )
SELECT topic, incarnation, partition, last
FROM open
WHERE (topic, incarnation, partition, last) NOT IN
(
    SELECT topic, incarnation, partition, last
    FROM batches
    WHERE (topic, incarnation, partition, last) IN (SELECT topic, incarnation, partition, last FROM open)
)
ORDER BY topic, partition, incarnation, last
LIMIT 100
