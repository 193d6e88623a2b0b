-- Replaces one row of the catalogue. Parameters: its columns, times as unix seconds.
INSERT INTO rollups (name, version, source, tables, state, complete_from, built_from, covered_from, audited_to, differences, differs_from)
SELECT
    {name:String}, {version:UInt16}, {source:String}, {tables:Array(String)}, {state:String},
    toDateTime({complete_from:UInt32}, 'UTC'), toDateTime({built_from:UInt32}, 'UTC'), toDateTime({covered_from:UInt32}, 'UTC'), toDateTime({audited_to:UInt32}, 'UTC'),
    {differences:UInt64}, toDateTime({differs_from:Nullable(UInt32)}, 'UTC')
