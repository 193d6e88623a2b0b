-- How far ingest and the rollup service have come: each number only grows, and only when one of them records what it has done. Reads batches,
-- dead_letter_replays, expired_days, rollups and rollup_repairs; one row.
-- Parameters: counted_since (unix ms; batches and steps of replays recorded before are not counted, because they may expire meanwhile).
-- FINAL: a merge, which may happen at any time, changes no number.
--   replay_steps: announcements and marks of replays of dead letters
--   days_dropped: it grows with every day of a raw table that retention drops, because the day is recorded before
--   last_evaluated_at: unix milliseconds, 0 = nothing was ever ingested
--   repairs_done: as text; it grows with every repair that is done, because a span's row then is new, or carries the time of a newer request
SELECT
    {counted_since:Int64} AS counted_since,
    (SELECT count() FROM batches FINAL WHERE written_at >= fromUnixTimestamp64Milli({counted_since:Int64}, 'UTC')) AS batches,
    (SELECT toUnixTimestamp64Milli(max(evaluated_at)) FROM batches) AS last_evaluated_at,
    (SELECT count() FROM dead_letter_replays FINAL WHERE replayed_at >= fromUnixTimestamp64Milli({counted_since:Int64}, 'UTC')) AS replay_steps,
    (SELECT sum(toUnixTimestamp(before)) FROM expired_days FINAL) AS days_dropped,
    (SELECT sum(progress) FROM rollups FINAL) AS rollup_steps,
    (SELECT toString(sum(toUnixTimestamp64Milli(requested_at))) FROM rollup_repairs FINAL WHERE done) AS repairs_done
