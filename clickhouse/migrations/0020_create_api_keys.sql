-- Keys of callers, never the keys themselves: SHA-256 as hex. Rows of one id add up, whatever their order: what creates a key, what uses it and what
-- revokes it are rows of their own, so that no writer can undo another's.
--   scopes: admin, query, query:<endpoint>, ingest; projects: empty = all; expires_at, revoked_at: NULL = never
CREATE TABLE api_keys
(
    id           String,
    name         SimpleAggregateFunction(max, String),
    hash         SimpleAggregateFunction(max, String),
    scopes       SimpleAggregateFunction(groupUniqArrayArray, Array(String)),
    projects     SimpleAggregateFunction(groupUniqArrayArray, Array(String)),
    created_at   SimpleAggregateFunction(max, Nullable(DateTime64(3, 'UTC'))),
    expires_at   SimpleAggregateFunction(max, Nullable(DateTime64(3, 'UTC'))),
    revoked_at   SimpleAggregateFunction(min, Nullable(DateTime64(3, 'UTC'))),
    last_used_at SimpleAggregateFunction(max, Nullable(DateTime64(3, 'UTC')))
)
ENGINE = AggregatingMergeTree
ORDER BY id;
