-- Writes one row of the catalogue. Parameters: its columns, times as unix seconds. A row with less progress than another of the same version is ignored.
INSERT INTO rollups (name, version, source, widest, from_raw, state, pending, progress)
SELECT {name:String}, {version:UInt16}, {source:String}, {widest:UInt32}, {from_raw:UInt32}, {state:String}, arrayMap(p -> toDateTime(p, 'UTC'), {pending:Array(UInt32)}), {progress:UInt32}
