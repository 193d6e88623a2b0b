-- How far the ledger goes: it only grows while somebody ingests. One row; last_evaluated_at is unix milliseconds, 0 = nothing was ever ingested.
SELECT count() AS batches, toUnixTimestamp64Milli(max(evaluated_at)) AS last_evaluated_at
FROM batches
