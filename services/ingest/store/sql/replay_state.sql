-- How far the replay of one dead letter is. Parameters: topic, incarnation, partition, offset, last (of its batch). One row.
--   in_ledger: its batch is finished; period: the newest; least_period: of the rows of its batch; announced: evaluatedAt (unix ms) and period of the first announcement; empty = none
WITH (
    SELECT groupArray(CAST((toUnixTimestamp64Milli(evaluated_at), toUnixTimestamp(period)), 'Tuple(evaluatedAt Int64, period UInt32)'))
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
    announced
