-- Counts the messages of the last ten minutes by outcome, from the ledger. One row per source that had any.
SELECT source, sum(stored) AS stored, sum(dead_lettered) AS dead_lettered
FROM batches
WHERE written_at >= now() - INTERVAL 10 MINUTE
GROUP BY source
ORDER BY source
