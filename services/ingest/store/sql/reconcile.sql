-- The account of every partition: its ledger, summed, beside what stands in the tables.
-- Parameters: cutoff (unix micros; older events may have been dropped by retention); kept_since (unix ms; of batches written before, dead letters and
--   marks of replays may have expired).
-- Reads batches, dead_letters, dead_letter_replays, expired_days and of the nine raw tables the Kafka coordinates. One row per topic, incarnation and partition.
WITH
    ledger AS
    (
        SELECT *
        FROM batches
        ORDER BY topic, partition, incarnation, first, written_at
        LIMIT 1 BY topic, partition, incarnation, first
    ),
    ranges AS
    (
        SELECT
            *,
            lagInFrame(toNullable(last)) OVER (PARTITION BY topic, partition, incarnation ORDER BY first ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS previous_last
        FROM ledger
    ),
    raw AS
    (
        SELECT kafka_topic, kafka_incarnation, kafka_partition, batch_last, count() AS found, uniqExact(kafka_offset) AS found_distinct
        FROM stored_rows
        GROUP BY kafka_topic, kafka_incarnation, kafka_partition, batch_last
    ),
    expired AS
    (
        SELECT source, toInt64(toUnixTimestamp(max(before))) * 1000000 AS before_micros
        FROM expired_days
        GROUP BY source
    ),
    dead AS
    (
        SELECT
            l.kafka_topic AS kafka_topic, l.kafka_incarnation AS kafka_incarnation, l.kafka_partition AS kafka_partition, l.batch_last AS batch_last,
            count() AS dead_found,
            uniqExact(l.kafka_offset) AS dead_distinct,
            countIf(isNotNull(p.replayed_at)) AS replayed,
            countIf(isNotNull(p.replayed_at) AND ifNull(toUnixTimestamp64Micro(p.timestamp) >= greatest({cutoff:Int64}, ifNull(e.before_micros, 0)), true)) AS replayed_within_retention,
            countIf(isNull(p.replayed_at) AND (l.kafka_topic, l.kafka_incarnation, l.kafka_partition, l.kafka_offset) IN (SELECT kafka_topic, kafka_incarnation, kafka_partition, kafka_offset FROM dead_letter_replays)) AS announced
        FROM dead_letters AS l
        LEFT ANY JOIN (SELECT * FROM dead_letter_replays WHERE done) AS p ON p.kafka_topic = l.kafka_topic AND p.kafka_incarnation = l.kafka_incarnation AND p.kafka_partition = l.kafka_partition AND p.kafka_offset = l.kafka_offset
        LEFT JOIN expired AS e ON e.source = l.source
        GROUP BY l.kafka_topic, l.kafka_incarnation, l.kafka_partition, l.batch_last
    ),
    checked AS
    (
        SELECT
            r.*,
            ifNull(d.replayed, 0) AS replayed,
            multiIf(
                r.last < r.first, 'range is empty',
                isNotNull(r.previous_last) AND r.first > assumeNotNull(r.previous_last) + 1, 'offsets are missing before it',
                isNotNull(r.previous_last) AND r.first <= assumeNotNull(r.previous_last), 'offsets are taken twice',
                r.last - r.first + 1 != r.stored + r.dead_lettered + r.null_values + r.no_records + r.gap, 'the ledger row does not add up',
                toUnixTimestamp64Milli(r.written_at) < {kept_since:Int64}, '',
                ifNull(d.dead_found, 0) != r.dead_lettered OR ifNull(d.dead_distinct, 0) != r.dead_lettered, 'dead letters differ from the ledger',
                isNotNull(r.min_timestamp) AND toUnixTimestamp64Micro(assumeNotNull(r.min_timestamp)) < greatest({cutoff:Int64}, ifNull(e.before_micros, 0)), '',
                ifNull(w.found, 0) NOT BETWEEN r.stored + ifNull(d.replayed_within_retention, 0) AND r.stored + ifNull(d.replayed, 0) + ifNull(d.announced, 0), 'rows differ from the ledger',
                ifNull(w.found_distinct, 0) != ifNull(w.found, 0), 'an offset is stored twice',
                ifNull(w.found, 0) > r.stored + ifNull(d.replayed, 0), 'the replay of a dead letter is not done',
                '') AS fault
        FROM ranges AS r
        LEFT JOIN raw AS w ON w.kafka_topic = r.topic AND w.kafka_incarnation = r.incarnation AND w.kafka_partition = r.partition AND w.batch_last = r.last
        LEFT JOIN expired AS e ON e.source = r.source
        LEFT JOIN dead AS d ON d.kafka_topic = r.topic AND d.kafka_incarnation = r.incarnation AND d.kafka_partition = r.partition AND d.batch_last = r.last
    )
SELECT
    topic,
    incarnation,
    partition,
    min(c.first) AS first,
    max(c.last) AS last,
    max(c.last) - min(c.first) + 1 AS consumed,
    sum(c.stored) + sum(c.replayed) AS stored,
    sum(c.dead_lettered) - sum(c.replayed) AS dead_lettered,
    sum(c.null_values) + sum(c.no_records) + sum(c.gap) AS skipped,
    sum(c.gap) AS gap,
    sum(c.replayed) AS replayed,
    countIf(c.fault != '') AS faults,
    argMinIf(c.fault, c.first, c.fault != '') AS first_fault,
    minIf(c.first, c.fault != '') AS first_fault_first,
    argMinIf(c.last, c.first, c.fault != '') AS first_fault_last
FROM checked AS c
GROUP BY topic, incarnation, partition
ORDER BY topic, incarnation, partition
