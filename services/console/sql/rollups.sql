-- The catalogue of rollups without retired versions, and their open repairs. Reads rollups and rollup_repairs; one row per rollup and version.
-- pending: periods that are not built yet; repairs: spans that must be rebuilt; differences: those that still differ from raw after a rebuild.
SELECT r.name AS name, r.version AS version, r.state AS state, length(r.pending) AS pending, o.repairs AS repairs, o.differences AS differences
FROM (SELECT name, version, source, state, pending FROM rollups FINAL WHERE state != 'retired') AS r
LEFT JOIN
(
    SELECT source, countIf(not is_done) AS repairs, countIf(not is_done AND last_outcome = 'differs') AS differences
    FROM
    (
        SELECT source, maxIf(requested_at, done) >= maxIf(requested_at, not done) AS is_done, argMaxIf(outcome, requested_at, not done) AS last_outcome
        FROM rollup_repairs FINAL
        GROUP BY source, period, from_time, to_time
    )
    GROUP BY source
) AS o ON o.source = r.source
ORDER BY name, version
