-- How far the replay of one dead letter is. Parameters: topic, incarnation, partition, offset, last (of its batch). One row.
--   in_ledger: its batch is finished; period: the newest; least_period: of the rows of its batch; evaluated_at (unix ms), announced_period: NULL = not announced
WITH (
    SELECT groupArray((toUnixTimestamp64Milli(evaluated_at), toUnixTimestamp(period)))
    FROM
    (
        SELECT evaluated_at, period
        FROM dead_letter_replays
        WHERE kafka_topic = {topic:String} AND kafka_incarnation = {incarnation:UInt32} AND kafka_partition = {partition:UInt32} AND kafka_offset = {offset:UInt64} AND NOT done
        ORDER BY replayed_at, evaluated_at
        LIMIT 1
    )
) AS announced
SELECT
    (
        SELECT toUInt8(count() > 0)
        FROM batches
        WHERE topic = {topic:String} AND incarnation = {incarnation:UInt32} AND partition = {partition:UInt32} AND last = {last:UInt64}
    ) AS in_ledger,
    (SELECT toUInt32(max(begin)) FROM rollup_periods) AS period,
    (
        SELECT toUInt32(min(period))
        FROM batches
        WHERE topic = {topic:String} AND incarnation = {incarnation:UInt32} AND partition = {partition:UInt32} AND last = {last:UInt64}
    ) AS least_period,
    if(empty(announced), NULL, announced[1].1) AS evaluated_at,
    if(empty(announced), NULL, announced[1].2) AS announced_period
