-- What the views that queries read stand for now, by their comments. Parameters: names. One row per view.
SELECT name, comment
FROM system.tables
WHERE database = currentDatabase() AND name IN {names:Array(String)}
