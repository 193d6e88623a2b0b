-- Parts that a swap has replaced and that are still on the disk. Parameters: table, partition (its id). One row per part.
--   Block numbers only grow: what was swapped in has greater ones than all that it replaced.
SELECT name
FROM system.parts
WHERE database = currentDatabase() AND table = {table:String} AND partition_id = {partition:String} AND NOT active
    AND max_block_number <
    (
        SELECT if(count() = 0, 9223372036854775807, min(min_block_number))
        FROM system.parts
        WHERE database = currentDatabase() AND table = {table:String} AND partition_id = {partition:String} AND active
    )
