-- Instants (unix seconds) at which a period begins besides midnight. Reads rollup_cuts; one row per instant, ascending.
SELECT DISTINCT toUnixTimestamp(at) AS at
FROM rollup_cuts
ORDER BY at
