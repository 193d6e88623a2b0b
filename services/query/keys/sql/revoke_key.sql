-- Revokes a key permanently. The time is 0: with the time of now, the key would be valid again for a clock that is behind.
-- Parameter: id.
INSERT INTO api_keys (id, revoked_at)
SELECT {id:String}, fromUnixTimestamp64Milli(0, 'UTC')
