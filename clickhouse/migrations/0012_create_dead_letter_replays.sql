-- Replays of dead letters, one row per letter and step; the row with done = true marks the letter as replayed.
--   The first row announces the replay before anything is written: whoever completes it evaluates the letter as of this moment and for this period, with
--   its own settings. Of different rows the first one counts: all have one token.
--   timestamp: of the event; its row goes with the raw retention, while the mark stays for 400 days
CREATE TABLE dead_letter_replays
(
    kafka_topic       LowCardinality(String),
    kafka_incarnation UInt32,
    kafka_partition   UInt32,
    kafka_offset      UInt64,
    done              Bool,
    evaluated_at      DateTime64(3, 'UTC'),
    rules             UInt16,
    period            DateTime('UTC'),
    timestamp         Nullable(DateTime64(6, 'UTC')),
    replayed_at       DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = ReplacingMergeTree
ORDER BY (kafka_topic, kafka_incarnation, kafka_partition, kafka_offset, done)
TTL toDateTime(replayed_at, 'UTC') + INTERVAL 400 DAY
SETTINGS non_replicated_deduplication_window = 10000;
