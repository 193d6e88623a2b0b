-- The keys that are not revoked, expired ones included. A replaced key expires at the moment of its revocation.
-- Parameter: now (unix milliseconds). Reads: api_keys. Rows: one per key, oldest first; times as unix milliseconds.
SELECT
    id,
    max(name) AS name,
    max(hash) AS hash,
    arraySort(groupUniqArrayArray(scopes)) AS scopes,
    arraySort(groupUniqArrayArray(projects)) AS projects,
    toUnixTimestamp64Milli(max(created_at)) AS created_at,
    if(isNull(max(expires_at)), toUnixTimestamp64Milli(min(revoked_at)), toUnixTimestamp64Milli(least(max(expires_at), ifNull(min(revoked_at), max(expires_at))))) AS expires_at,
    toUnixTimestamp64Milli(max(last_used_at)) AS last_used_at
FROM api_keys
GROUP BY id
HAVING (isNull(min(revoked_at)) OR toUnixTimestamp64Milli(min(revoked_at)) > {now:Int64}) AND hash != ''
ORDER BY created_at, id
