-- Tables of builds that were killed, a day after they were made. One row per table.
SELECT name
FROM system.tables
WHERE database = currentDatabase() AND match(name, '_build_[0-9a-f]{8}$') AND metadata_modification_time < now() - INTERVAL 1 DAY
