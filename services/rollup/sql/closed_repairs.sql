-- Spans of a period that were repaired. Parameters: source, period (unix seconds). Reads rollup_repairs; one row per span.
--   requested_at: of the newest request that was answered, as text
SELECT toUnixTimestamp(r.from_time) AS from, toUnixTimestamp(r.to_time) AS to, toString(r.requested_at) AS requested_at, r.reason AS reason, r.accept_loss AS accept_loss
FROM rollup_repairs AS r FINAL
WHERE r.source = {source:String} AND r.period = toDateTime({period:UInt32}, 'UTC') AND r.done
