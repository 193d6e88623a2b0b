-- How far the ledger goes: it only grows while somebody ingests. One row; last_judged_at is unix milliseconds, 0 = nothing was ever ingested.
SELECT count() AS batches, toUnixTimestamp64Milli(max(judged_at)) AS last_judged_at
FROM batches
