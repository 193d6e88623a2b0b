-- How many batches of a source were finished since a moment. Parameters: source, since (unix ms). Reads one month's part of batches; one row.
SELECT count() AS batches
FROM batches
WHERE source = {source:String} AND judged_at >= fromUnixTimestamp64Milli({since:Int64}, 'UTC')
