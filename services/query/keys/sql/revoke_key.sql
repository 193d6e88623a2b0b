-- Revokes a key permanently: at the earliest time there is, because by its own it would be valid again where a clock is set back, or behind.
-- Parameter: id.
INSERT INTO api_keys (id, revoked_at)
SELECT {id:String}, fromUnixTimestamp64Milli(0, 'UTC')
