-- Tables of builds that were killed: those that were made before a moment. Parameters: before (unix seconds). One row per table.
SELECT name
FROM system.tables
WHERE database = currentDatabase() AND match(name, '_build_[0-9a-f]{8}$') AND metadata_modification_time < toDateTime({before:UInt32}, 'UTC')
