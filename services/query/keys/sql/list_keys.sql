-- The keys that are not revoked yet, expired ones included. A replaced key is revoked in the future.
-- Parameter: now (unix milliseconds). Reads: api_keys. Rows: one per key, oldest first; times as unix milliseconds.
SELECT
    id,
    max(name) AS name,
    max(hash) AS hash,
    arraySort(groupUniqArrayArray(scopes)) AS scopes,
    arraySort(groupUniqArrayArray(projects)) AS projects,
    toUnixTimestamp64Milli(max(created_at)) AS created_at,
    toUnixTimestamp64Milli(max(expires_at)) AS expires_at,
    toUnixTimestamp64Milli(min(revoked_at)) AS revoked_at,
    toUnixTimestamp64Milli(max(last_used_at)) AS last_used_at
FROM api_keys
GROUP BY id
HAVING (isNull(revoked_at) OR revoked_at > {now:Int64}) AND hash != ''
ORDER BY created_at, id
