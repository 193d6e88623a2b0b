-- What became of a backup or restore. Parameters: id. One row; none where the engine does not know it.
SELECT toString(status) AS status, error, num_files AS files, total_size AS bytes
FROM system.backups
WHERE id = {id:String}
