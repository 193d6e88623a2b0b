-- The catalogue of rollups, written by the rollup service, read by whoever wants to know what they hold. A migration that makes a rollup, or a new
-- version of one, adds its row here with name, version, source and tables; the service does the rest (docs/rollups.md).
--   source: the raw table; tables: what queries read, each made from the one before it or from source. Table t of version n is t_v<n>, filled by
--     the view t_v<n>_mv; the view t stands for the version that serves, and for the raw table where that version is not complete yet
--   state: new (just migrated), building (history is being added), serving, retired (its tables are gone)
--   complete_from: stamp (judged_at of a batch) from which the views have seen every batch
--   built_from: stamp down to which history is in it; 1970 = all there is
--   covered_from: event time from which the tables equal the raw table; queries get what is older from raw. 1970 = always
--   audited_to: event time up to which the minutes have been compared with the raw table
--   differences: buckets seen to differ twice and not mended yet; differs_from: the first of them
CREATE TABLE rollups
(
    name         LowCardinality(String),
    version      UInt16,
    source       LowCardinality(String),
    tables       Array(String),
    state        LowCardinality(String) DEFAULT 'new',
    complete_from DateTime('UTC') DEFAULT 0,
    built_from   DateTime('UTC') DEFAULT 0,
    covered_from DateTime('UTC') DEFAULT 0,
    audited_to   DateTime('UTC') DEFAULT 0,
    differences  UInt64 DEFAULT 0,
    differs_from Nullable(DateTime('UTC')),
    written_at   DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC')
)
ENGINE = ReplacingMergeTree(written_at)
ORDER BY (name, version);

-- Rollups are partitioned by period of stamps, not of event time: a batch adds to the partition of the moment at which it was judged, so a period
-- that has ended gets nothing more, however late its events were, and can be built anew from raw and swapped in while events flow.
-- A period begins at midnight and at every instant in this table. An instant is announced before it comes, so that all batches agree on it.
CREATE TABLE rollup_cuts
(
    at DateTime('UTC')
)
ENGINE = ReplacingMergeTree
ORDER BY at;
