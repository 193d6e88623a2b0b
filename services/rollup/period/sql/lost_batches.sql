-- Batches of which the raw table has fewer rows than the ledger counts, and replayed dead letters whose rows it lacks. At most 100 rows.
-- Parameters: source; period (unix seconds); since: the least period of batches with rows in it (batches_since.sql);
--   until: how far the batch's rows are looked for, period or the end of time; horizon: retention has dropped events before it, so a batch with older ones is not compared.
WITH
    finished AS
    (
        SELECT topic, incarnation, partition, last, max(b.stored) AS in_ledger
        FROM batches AS b
        WHERE b.source = {source:String} AND b.stored > 0
            AND b.period <= toDateTime({period:UInt32}, 'UTC')
            AND (b.period = toDateTime({period:UInt32}, 'UTC') OR b.evaluated_at >= toDateTime64({period:UInt32}, 3, 'UTC'))
            AND ifNull(b.min_timestamp >= toDateTime64({horizon:UInt32}, 6, 'UTC'), false)
        GROUP BY topic, incarnation, partition, last
    ),
    replayed AS
    (
        SELECT kafka_topic AS topic, kafka_incarnation AS incarnation, kafka_partition AS partition, kafka_offset AS offset
        FROM dead_letter_replays
        WHERE done AND period <= toDateTime({period:UInt32}, 'UTC')
            AND (period = toDateTime({period:UInt32}, 'UTC') OR evaluated_at >= toDateTime64({period:UInt32}, 3, 'UTC'))
            AND ifNull(timestamp >= toDateTime64({horizon:UInt32}, 6, 'UTC'), false)
            AND kafka_topic IN (SELECT DISTINCT topic FROM batches WHERE source = {source:String})
    ),
    held AS
    (
        SELECT
            kafka_topic AS topic, kafka_incarnation AS incarnation, kafka_partition AS partition, batch_last AS last,
            countIf((topic, incarnation, partition, kafka_offset) NOT IN (SELECT kafka_topic, kafka_incarnation, kafka_partition, kafka_offset FROM dead_letter_replays)) AS in_raw
        FROM {source:Identifier}
        WHERE period >= toDateTime({since:UInt32}, 'UTC') AND period <= toDateTime({until:UInt32}, 'UTC')
        GROUP BY topic, incarnation, partition, last
    )
SELECT f.topic AS topic, f.incarnation AS incarnation, f.partition AS partition, f.last AS last, toUInt64(f.in_ledger) AS stored, h.in_raw AS rows
FROM finished AS f
LEFT JOIN held AS h ON f.topic = h.topic AND f.incarnation = h.incarnation AND f.partition = h.partition AND f.last = h.last
WHERE f.in_ledger > h.in_raw
LIMIT 100
UNION ALL
SELECT topic, incarnation, partition, offset, toUInt64(1), toUInt64(0)
FROM replayed
WHERE (topic, incarnation, partition, offset) NOT IN
(
    SELECT kafka_topic, kafka_incarnation, kafka_partition, kafka_offset
    FROM {source:Identifier}
    WHERE period >= toDateTime({since:UInt32}, 'UTC')
)
LIMIT 100
