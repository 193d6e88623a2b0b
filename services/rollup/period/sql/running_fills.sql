-- Builds of a rollup that fill their side tables now. Parameters: fills (RE2, the beginning of their statements). Reads system.processes; one row per build.
SELECT query_id
FROM system.processes
WHERE current_database = currentDatabase() AND query_kind = 'Insert' AND match(query, {fills:String})
