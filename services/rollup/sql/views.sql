-- The SELECTs of materialized views, as the engine prints them. Parameters: names. One row per view.
SELECT name, as_select AS select
FROM system.tables
WHERE database = currentDatabase() AND name IN {names:Array(String)}
