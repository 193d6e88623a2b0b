-- The catalogue of rollups without retired versions. Reads rollups; one row per rollup and version.
SELECT name, version, state, toUnixTimestamp(covered_from) AS covered_from, toUnixTimestamp(audited_to) AS audited_to, differences
FROM rollups FINAL
WHERE state != 'retired'
ORDER BY name, version
