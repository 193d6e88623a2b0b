-- Inserts that run now, and whose they are. Reads system.processes; one row per insert.
SELECT query_id, user, current_database AS database, toUInt32(elapsed) AS seconds
FROM system.processes
WHERE query_kind IN ('Insert', 'AsyncInsertFlush')
