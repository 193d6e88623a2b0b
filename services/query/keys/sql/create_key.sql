-- Creates a key. Parameters: id, name, hash (SHA-256, hex), scopes, projects, created_at and expires_at (unix milliseconds, NULL = never).
INSERT INTO api_keys (id, name, hash, scopes, projects, created_at, expires_at)
SELECT
    {id:String},
    {name:String},
    {hash:String},
    {scopes:Array(String)},
    {projects:Array(String)},
    fromUnixTimestamp64Milli({created_at:Int64}, 'UTC'),
    fromUnixTimestamp64Milli({expires_at:Nullable(Int64)}, 'UTC')
