-- What became of a backup or restore. files, bytes: of a backup what it has itself, without its base. free: of the disk, now; materialize: a node without this disk has no row and so no error. Parameters: id, disk. One row; none where the engine does not know it.
SELECT toString(status) AS status, error, if(status = 'BACKUP_CREATED', num_entries, num_files) AS files, if(status = 'BACKUP_CREATED', compressed_size, total_size) AS bytes, filesystemAvailable(materialize({disk:String})) AS free
FROM system.backups
WHERE id = {id:String}
