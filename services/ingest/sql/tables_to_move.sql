-- Tables and views of the database with the statements that make them, in an order in which they can be made: views after what they read. Without what a killed
-- build of a rollup left. One row per table.
-- Comments of views are left out: 26.7 prints them where 25.8 does not parse them, and the rollup service writes them again.
SELECT name, engine, replaceRegexpOne(create_table_query, if(engine = 'View', ' COMMENT \'(?:[^\'\\\\]|\\\\.)*\'', '$^'), '') AS definition, ifNull(total_rows, 0) AS rows
FROM system.tables
WHERE database = currentDatabase() AND NOT match(name, '_(build|repair)_[0-9]+_[0-9a-f]{8}$')
ORDER BY engine = 'View', engine = 'MaterializedView', name
