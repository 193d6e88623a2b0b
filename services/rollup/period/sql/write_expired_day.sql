-- Records that retention drops a day of a raw table. Parameters: source, before (unix seconds, its end), period (unix seconds, the newest one). Writes one row; a
-- repetition, or an earlier day, changes nothing.
INSERT INTO expired_days (source, before, period)
SELECT {source:String}, toDateTime({before:UInt32}, 'UTC'), toDateTime({period:UInt32}, 'UTC')
