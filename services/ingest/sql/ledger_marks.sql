-- The records by which the ledger knows one life of a topic: the first and the last one of each batch, ascending.
-- Parameters: topic, partition, incarnation. Reads the batches of that life; two rows a batch at most.
SELECT DISTINCT offset, time, checksum
FROM
(
    SELECT arrayJoin([(begin_offset, begin_record_time, begin_checksum), (end_offset, end_record_time, end_checksum)]) AS mark,
        mark.1 AS offset, mark.2 AS time, mark.3 AS checksum
    FROM batches
    WHERE topic = {topic:String} AND partition = {partition:UInt32} AND incarnation = {incarnation:UInt32}
)
WHERE isNotNull(offset) AND isNotNull(checksum)
ORDER BY offset
