-- Writes one finished batch into the ledger, with its rows and dead letters counted where they stand.
-- What is neither a row, a dead letter nor a null value was no record, or fell into the gap.
-- Parameters: source (the raw table), topic, partition, incarnation, first, last, null_values, gap, judged_at (unix ms), end_offset, end_record_time, end_checksum, closes
-- Reads: of the raw table the parts that hold this moment of judgement (minmax index), of dead_letters the range. Writes one row.
INSERT INTO batches (topic, incarnation, partition, first, last, source, stored, dead_lettered, null_values, no_records, gap, judged_at, end_offset, end_record_time, end_checksum, closes, min_timestamp)
WITH
    (
        SELECT count()
        FROM dead_letters
        WHERE kafka_topic = {topic:String} AND kafka_incarnation = {incarnation:UInt32} AND kafka_partition = {partition:UInt32}
            AND kafka_offset BETWEEN {first:UInt64} AND {last:UInt64}
    ) AS dead,
    (
        SELECT (count(), min(timestamp))
        FROM {source:Identifier}
        WHERE judged_at = fromUnixTimestamp64Milli({judged_at:Int64}, 'UTC')
            AND kafka_topic = {topic:String} AND kafka_incarnation = {incarnation:UInt32} AND kafka_partition = {partition:UInt32}
            AND kafka_offset BETWEEN {first:UInt64} AND {last:UInt64}
    ) AS raw,
    raw.1 AS stored,
    toUInt64({last:UInt64} - {first:UInt64} + 1 - stored - dead - {null_values:UInt32}) AS rest
SELECT
    {topic:String}, {incarnation:UInt32}, {partition:UInt32}, {first:UInt64}, {last:UInt64}, {source:String},
    stored, dead, {null_values:UInt32}, rest - least(rest, {gap:UInt64}), least(rest, {gap:UInt64}),
    fromUnixTimestamp64Milli({judged_at:Int64}, 'UTC'), {end_offset:Nullable(UInt64)}, {end_record_time:Int64}, {end_checksum:Nullable(UInt32)}, {closes:Bool}, if(stored > 0, raw.2, NULL)
