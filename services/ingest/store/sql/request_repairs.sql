-- Has the rollups of one batch's rows rebuilt: one row per period, with the span of its events, seconds, to_time excluded.
-- Parameters: source (the raw table), topic, partition, incarnation, first, last, period (unix s: its rows are of no earlier one). Reads as orphan_rows.sql, and rollup_repairs.
--   requested_at: by a clock that was ahead of this one, the same span may have been requested and built later than now
INSERT INTO rollup_repairs (source, period, from_time, to_time, requested_at)
SELECT {source:String}, period, toDateTime(min(timestamp), 'UTC'), toDateTime(max(timestamp), 'UTC') + 1,
    greatest(now64(3, 'UTC'), (
        SELECT max(r.requested_at) + INTERVAL 1 MILLISECOND
        FROM rollup_repairs AS r
        WHERE r.source = {source:String} AND r.period >= toDateTime({period:UInt32}, 'UTC')
    ))
FROM {source:Identifier}
WHERE period >= toDateTime({period:UInt32}, 'UTC') AND kafka_topic = {topic:String} AND kafka_partition = {partition:UInt32}
    AND kafka_incarnation = {incarnation:UInt32} AND kafka_offset BETWEEN {first:UInt64} AND {last:UInt64}
GROUP BY period
