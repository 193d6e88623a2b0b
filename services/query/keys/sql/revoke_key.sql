-- Revokes a key permanently. Parameters: id, at (unix milliseconds).
INSERT INTO api_keys (id, revoked_at)
SELECT {id:String}, fromUnixTimestamp64Milli({at:Int64}, 'UTC')
