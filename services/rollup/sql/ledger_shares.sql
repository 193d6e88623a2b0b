-- What became of the messages of the last ten minutes, by the ledger. Reads the parts of batches from the day before (a clock may be behind). One row per source that had any.
SELECT source, sum(stored) AS stored, sum(dead_lettered) AS dead_lettered
FROM batches
WHERE judged_at >= now() - INTERVAL 1 DAY AND written_at >= now() - INTERVAL 10 MINUTE
GROUP BY source
ORDER BY source
