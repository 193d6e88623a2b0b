-- The catalogue of rollups, written by the rollup service. A migration that makes a rollup, or a new version of one, adds its row with name, version,
-- source, widest and from_raw; the service does the rest (docs/rollups.md). Version n of rollup r is the table r_v<n>, filled by the view r_v<n>_mv; queries read r.
--   source: the raw table; widest: the widest bucket, seconds; from_raw: the widest one that a build makes from raw, an hour
--     at least because minutes expire. If it is narrower than `widest`, a build sums buckets of `widest` from it: the view must make the same sums
--   state: new (just migrated), building (history is being added), serving, retired (its data is gone)
--   pending: periods that are not built yet: queries get them from raw, or from the version that still serves
--   progress: grows with every step, so a delayed service cannot undo another's step
CREATE TABLE rollups
(
    name     LowCardinality(String),
    version  UInt16,
    source   LowCardinality(String),
    widest   UInt32 DEFAULT 3600,
    from_raw UInt32 DEFAULT widest,
    state    LowCardinality(String) DEFAULT 'new',
    pending  Array(DateTime('UTC')),
    progress UInt32 DEFAULT 0
)
ENGINE = ReplacingMergeTree(progress)
ORDER BY (name, version);

-- The periods that ingest may write to: a batch takes the newest one. Rollups are partitioned by it, not by event time: once a newer one is here, an older
-- period gets only what was in flight, and can be built from raw and swapped in while events flow.
CREATE TABLE rollup_periods
(
    begin DateTime('UTC')
)
ENGINE = ReplacingMergeTree
ORDER BY begin;

-- Spans of event time in one period that must be rebuilt: ingest was killed between raw and views, the audit found a difference, or an operator
-- asked for it. The rollup service builds them and adds the row with done = true, which carries the requested_at of the newest request that it answers.
--   reason: recovery, audit or command; accept_loss: build although raw has fewer rows than the ledger counts
--   outcome: of the last attempt; '' if there was none
CREATE TABLE rollup_repairs
(
    source       LowCardinality(String),
    period       DateTime('UTC'),
    from_time    DateTime('UTC'),
    to_time      DateTime('UTC'),
    done         Bool DEFAULT false,
    requested_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC'),
    reason       LowCardinality(String) DEFAULT 'recovery',
    accept_loss  Bool DEFAULT false,
    outcome      LowCardinality(String) DEFAULT ''
)
ENGINE = ReplacingMergeTree(requested_at)
ORDER BY (source, period, from_time, to_time, done);
