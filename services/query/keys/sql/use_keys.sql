-- Records when keys were last used. Parameters: ids and ats (unix milliseconds), of one length.
INSERT INTO api_keys (id, last_used_at)
SELECT used.1, fromUnixTimestamp64Milli(used.2, 'UTC')
FROM (SELECT arrayJoin(arrayZip({ids:Array(String)}, {ats:Array(Int64)})) AS used)
