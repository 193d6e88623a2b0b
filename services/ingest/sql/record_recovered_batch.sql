-- As record_batch.sql, for a batch that was formed again: rows are counted in the raw table too, because records that were there the first
-- time may be gone from Kafka by now. What is neither row, dead letter nor null value was no record, or fell into the gap.
INSERT INTO batches (topic, incarnation, partition, first, last, source, stored, dead_lettered, null_values, no_records, gap, judged_at, end_record_time, end_checksum)
WITH
    (
        SELECT count()
        FROM dead_letters
        WHERE kafka_topic = {topic:String} AND kafka_incarnation = {incarnation:UInt32} AND kafka_partition = {partition:UInt32}
            AND kafka_offset BETWEEN {first:UInt64} AND {last:UInt64}
    ) AS dead,
    (
        SELECT count()
        FROM {source:Identifier}
        WHERE judged_at = fromUnixTimestamp64Milli({judged_at:Int64}, 'UTC')
            AND kafka_topic = {topic:String} AND kafka_incarnation = {incarnation:UInt32} AND kafka_partition = {partition:UInt32}
            AND kafka_offset BETWEEN {first:UInt64} AND {last:UInt64}
    ) AS stored,
    {last:UInt64} - {first:UInt64} + 1 - stored - dead - {null_values:UInt32} AS rest
SELECT
    {topic:String}, {incarnation:UInt32}, {partition:UInt32}, {first:UInt64}, {last:UInt64}, {source:String},
    stored, dead, {null_values:UInt32}, rest - least(rest, {gap:UInt64}), least(rest, {gap:UInt64}),
    fromUnixTimestamp64Milli({judged_at:Int64}, 'UTC'), {end_record_time:Int64}, {end_checksum:Nullable(UInt32)}
