-- How many rows of a raw table were judged in a period. Parameters: source, from, to (unix seconds). judged_at prunes by its minmax index; one row.
SELECT count() AS found
FROM {source:Identifier}
WHERE judged_at >= toDateTime64({from:UInt32}, 3, 'UTC') AND judged_at < toDateTime64({to:UInt32}, 3, 'UTC')
