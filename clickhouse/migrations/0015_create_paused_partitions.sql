-- Partitions that were paused because too many of their last messages were bad. One row per partition that ever was: the last pause.
--   next: first offset that is not yet taken; messages before it do not count again
--   bad of messages: what the pause was decided by
--   until: the partition resumes then, by the server's clock; after a resume by command, the moment of the command
CREATE TABLE paused_partitions
(
    topic       LowCardinality(String),
    partition   UInt32,
    incarnation UInt32,
    next        UInt64,
    bad         UInt64,
    messages    UInt64,
    paused_at   DateTime64(3, 'UTC'),
    until       DateTime64(3, 'UTC'),
    version     UInt64
)
ENGINE = ReplacingMergeTree(version)
ORDER BY (topic, partition);
