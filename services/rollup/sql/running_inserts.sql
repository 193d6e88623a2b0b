-- Inserts that run now. Reads system.processes; one row per insert.
SELECT query_id
FROM system.processes
WHERE query_kind IN ('Insert', 'AsyncInsertFlush')
