-- Records that retention drops a day of a raw table. Parameters: source, before (unix seconds, its end). Writes one row; a repetition, or an earlier day, changes nothing.
INSERT INTO expired_days
SELECT {source:String}, toDateTime({before:UInt32}, 'UTC')
