-- Requests a repair, records the outcome of the last attempt, or marks the repair as done. Parameters: its columns; times as unix seconds, requested_at as text or '' = now.
--   now: by a clock that was ahead of this one, the same span may have been requested and built later than now
INSERT INTO rollup_repairs (source, period, from_time, to_time, done, requested_at, reason, accept_loss, outcome)
SELECT
    {source:String}, toDateTime({period:UInt32}, 'UTC'), toDateTime({from:UInt32}, 'UTC'), toDateTime({to:UInt32}, 'UTC'), {done:Bool},
    if({requested_at:String} = '', greatest(now64(3, 'UTC'), (
        SELECT max(r.requested_at) + INTERVAL 1 MILLISECOND
        FROM rollup_repairs AS r
        WHERE r.source = {source:String} AND r.period = toDateTime({period:UInt32}, 'UTC') AND r.from_time = toDateTime({from:UInt32}, 'UTC') AND r.to_time = toDateTime({to:UInt32}, 'UTC')
    )), toDateTime64(if({requested_at:String} = '', '1970-01-01 00:00:00.000', {requested_at:String}), 3, 'UTC')),
    {reason:String}, {accept_loss:Bool}, {outcome:String}
