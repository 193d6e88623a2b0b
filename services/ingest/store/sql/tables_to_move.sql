-- Tables and views of the database with the statements that make them, in an order in which they can be made: views after what they read. One row per table.
-- Comments of views are left out: 26.7 prints them where 25.8 does not parse them, and the rollup service writes them again.
SELECT name, engine, replaceRegexpOne(create_table_query, if(engine = 'View', ' COMMENT \'(?:[^\'\\\\]|\\\\.)*\'', '$^'), '') AS definition, ifNull(total_rows, 0) AS rows
FROM system.tables
WHERE database = currentDatabase()
ORDER BY engine = 'View', engine = 'MaterializedView', name
