-- How many batches of a source were judged or finished since a moment, and when the tables with its tokens were made (unix ms): a table restored from a
-- backup has a new file of metadata, and no deduplication window. now is the server's (unix ms). Parameters: source, since (unix ms). Reads the parts of batches from the
-- day before (a clock may be behind); one row.
SELECT
    count() AS batches,
    (
        SELECT toInt64(max(toUnixTimestamp(metadata_modification_time))) * 1000
        FROM system.tables
        WHERE database = currentDatabase() AND name IN ({source:String}, 'dead_letters', 'batches')
    ) AS tables_made,
    toUnixTimestamp64Milli(now64(3, 'UTC')) AS now
FROM batches
WHERE source = {source:String}
    AND judged_at >= fromUnixTimestamp64Milli({since:Int64}, 'UTC') - INTERVAL 1 DAY
    AND greatest(judged_at, written_at) >= fromUnixTimestamp64Milli({since:Int64}, 'UTC')
