-- Parts of a table, to be read one after the other. Parameters: table. One row per part.
SELECT name, rows, data_uncompressed_bytes AS bytes
FROM system.parts
WHERE database = currentDatabase() AND table = {table:String} AND active AND rows > 0
ORDER BY name
