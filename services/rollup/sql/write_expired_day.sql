-- Notes that a day of a raw table goes. Parameters: source, before (unix seconds, its end). Writes one row; noted twice, or after a later day, changes nothing.
INSERT INTO expired_days
SELECT {source:String}, toDateTime({before:UInt32}, 'UTC')
