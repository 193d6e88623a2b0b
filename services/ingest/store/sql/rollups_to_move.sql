-- Tables of rollups that views fill, with their raw tables. One row per table.
--   horizon: event time (unix seconds) before which retention has dropped days of the raw table, 0 = none
SELECT concat(name, '_v', toString(version)) AS table, source, horizon
FROM rollups FINAL
LEFT JOIN (SELECT source, toUnixTimestamp(max(before)) AS horizon FROM expired_days GROUP BY source) AS dropped USING (source)
WHERE state != 'retired'
ORDER BY table
