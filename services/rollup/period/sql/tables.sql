-- Tables and views of the database. Parameters: names. One row per table; select: of a view, as the engine prints it.
SELECT name, engine, comment, as_select AS select
FROM system.tables
WHERE database = currentDatabase() AND name IN {names:Array(String)}
