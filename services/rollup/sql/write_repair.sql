-- Requests a repair, records the outcome of the last attempt, or marks the repair as done. Parameters: its columns; times as unix seconds, requested_at as text or '' = now.
INSERT INTO rollup_repairs (source, period, from_time, to_time, done, requested_at, reason, accept_loss, outcome)
SELECT
    {source:String}, toDateTime({period:UInt32}, 'UTC'), toDateTime({from:UInt32}, 'UTC'), toDateTime({to:UInt32}, 'UTC'), {done:Bool},
    if({requested_at:String} = '', now64(3, 'UTC'), toDateTime64(if({requested_at:String} = '', '1970-01-01 00:00:00.000', {requested_at:String}), 3, 'UTC')),
    {reason:String}, {accept_loss:Bool}, {outcome:String}
