-- The catalogue of rollups, written by the rollup service, read by whoever wants to know what they hold. A migration that makes a rollup, or a new
-- version of one, adds its row here with name, version, source and tables; the service does the rest (docs/rollups.md).
--   source: the raw table; tables: what queries read, each made from the one before it or from source. Table t of version n is t_v<n>, filled by
--     the view t_v<n>_mv; the view t stands for the version that serves, and for the raw table where that version is not complete yet
--   state: new (just migrated), building (history is being added), serving, retired (its tables are gone)
--   complete_from: period from which the views have seen every batch
--   built_from: period down to which history is in it; 1970 = all there is
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

-- The periods that ingest may write to: a batch takes the newest one. Rollups are partitioned by it, not by event time: once a newer one is here, an older
-- period gets only what was in flight, and can be built from raw and swapped in while events flow.
CREATE TABLE rollup_periods
(
    begin DateTime('UTC')
)
ENGINE = ReplacingMergeTree
ORDER BY begin;

-- Spans of event time in one period whose rollups may lack rows that raw has: ingest was killed between the two. The rollup service rebuilds them.
CREATE TABLE rollup_repairs
(
    source       LowCardinality(String),
    period       DateTime('UTC'),
    from_time    DateTime('UTC'),
    to_time      DateTime('UTC'),
    done         Bool DEFAULT false,
    requested_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = ReplacingMergeTree
ORDER BY (source, period, from_time, to_time, done);
