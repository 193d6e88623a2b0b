-- Replaces a key: creates a new one and sets the moment at which the old one ends. It is one insert, so both happen or neither does.
-- Parameters: of the new key id, name, hash (SHA-256, hex), scopes, projects, created_at and expires_at (unix milliseconds, NULL = never); old_id and ends_at.
INSERT INTO api_keys (id, name, hash, scopes, projects, created_at, expires_at, revoked_at)
SELECT
    {id:String},
    {name:String},
    {hash:String},
    {scopes:Array(String)},
    {projects:Array(String)},
    fromUnixTimestamp64Milli({created_at:Int64}, 'UTC'),
    fromUnixTimestamp64Milli({expires_at:Nullable(Int64)}, 'UTC'),
    NULL
UNION ALL
SELECT {old_id:String}, '', '', [], [], NULL, NULL, fromUnixTimestamp64Milli({ends_at:Int64}, 'UTC')
