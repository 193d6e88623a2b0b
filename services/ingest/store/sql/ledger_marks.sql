-- The newest records before an offset by which the ledger knows one life of a topic: the first and the last one of each batch, newest first.
-- Parameters: topic, partition, incarnation, before (the offset). Reads batches, backwards in its sorting order; of 500 batches at most, two rows each.
SELECT DISTINCT offset, time, checksum
FROM
(
    SELECT arrayJoin([(begin_offset, begin_record_time, begin_checksum), (end_offset, end_record_time, end_checksum)]) AS mark,
        mark.1 AS offset, mark.2 AS time, mark.3 AS checksum
    FROM
    (
        SELECT begin_offset, begin_record_time, begin_checksum, end_offset, end_record_time, end_checksum
        FROM batches
        WHERE topic = {topic:String} AND partition = {partition:UInt32} AND incarnation = {incarnation:UInt32} AND first < {before:UInt64}
            AND isNotNull(end_offset)
        ORDER BY topic DESC, partition DESC, incarnation DESC, first DESC
        LIMIT 500
    )
)
WHERE isNotNull(offset) AND isNotNull(checksum) AND offset < {before:UInt64}
ORDER BY offset DESC
