-- Which consumer group may write a partition: the row with the highest epoch. An epoch is claimed by inserting its row under a token of its own, which
-- ClickHouse takes once, so two groups cannot claim the same one. A group claims twice: the second
-- row, some seconds later, says that no insert of the former group can be in flight any more.
--   shard: of a cluster, the one that has all rows of the partition; '' without a cluster. The first claim decides it (docs/scale.md).
CREATE TABLE partition_owners
(
    topic          LowCardinality(String),
    partition      UInt32,
    epoch          UInt64,
    consumer_group String,
    shard          LowCardinality(String) DEFAULT '',
    claimed_at     DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = MergeTree
ORDER BY (topic, partition, epoch)
SETTINGS non_replicated_deduplication_window = 10000;
