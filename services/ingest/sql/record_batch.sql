-- Writes one finished batch into the ledger. Dead letters are counted where they stand; every other event of the batch is a row.
-- Parameters: topic, partition, incarnation, first, last, source, events, null_values, no_records, gap, judged_at, end_record_time, end_checksum
INSERT INTO batches (topic, incarnation, partition, first, last, source, stored, dead_lettered, null_values, no_records, gap, judged_at, end_record_time, end_checksum)
WITH
    (
        SELECT count()
        FROM dead_letters
        WHERE kafka_topic = {topic:String} AND kafka_incarnation = {incarnation:UInt32} AND kafka_partition = {partition:UInt32}
            AND kafka_offset BETWEEN {first:UInt64} AND {last:UInt64}
    ) AS dead
SELECT
    {topic:String}, {incarnation:UInt32}, {partition:UInt32}, {first:UInt64}, {last:UInt64}, {source:String},
    {events:UInt32} - dead, dead, {null_values:UInt32}, {no_records:UInt64}, {gap:UInt64},
    fromUnixTimestamp64Milli({judged_at:Int64}, 'UTC'), {end_record_time:Int64}, {end_checksum:Nullable(UInt32)}
