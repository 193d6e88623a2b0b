-- What became visible in each step of time, by the ledger. Parameters: step (seconds), from (unix seconds). Prunes granules by time.
-- delay_ms: how old the newest record of the last batch was when it became visible. One row per step and topic.
SELECT
    intDiv(toUnixTimestamp(written_at), {step:UInt32}) AS at,
    topic,
    any(source) AS source,
    sum(stored) + sum(dead_lettered) AS events,
    sum(dead_lettered) AS bad,
    max(end_record_time) AS newest_ms,
    argMax(toUnixTimestamp64Milli(written_at) - end_record_time, written_at) AS delay_ms
FROM
(
    SELECT topic, source, stored, dead_lettered, written_at, end_record_time
    FROM batches
    WHERE written_at >= toDateTime64({from:UInt32}, 3, 'UTC')
    LIMIT 1 BY topic, partition, incarnation, first
)
GROUP BY at, topic
ORDER BY at, topic
