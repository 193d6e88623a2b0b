-- Tables of the database by a pattern. Parameters: pattern (RE2). One row per table.
SELECT name
FROM system.tables
WHERE database = currentDatabase() AND match(name, {pattern:String})
ORDER BY name
