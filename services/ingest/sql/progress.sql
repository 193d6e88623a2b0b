-- How far ingest and the rollup service have come: each number only grows, and only when one of them records what it has done. Reads batches,
-- dead_letter_replays, rollups and rollup_repairs; one row.
--   replay_steps: announcements and marks of replays of dead letters
--   last_evaluated_at: unix milliseconds, 0 = nothing was ever ingested
--   repairs_done: as text; it grows with every repair that is done, because a span's row then is new, or carries the time of a newer request
SELECT
    (SELECT count() FROM batches) AS batches,
    (SELECT toUnixTimestamp64Milli(max(evaluated_at)) FROM batches) AS last_evaluated_at,
    (SELECT count() FROM dead_letter_replays FINAL) AS replay_steps,
    (SELECT sum(progress) FROM rollups FINAL) AS rollup_steps,
    (SELECT toString(sum(toUnixTimestamp64Milli(requested_at))) FROM rollup_repairs FINAL WHERE done) AS repairs_done
