-- The catalogue of rollups as it is now; retired versions too. Reads rollups; one row per rollup and version, ascending.
SELECT name, version, source, widest, from_raw, state, arraySort(arrayMap(p -> toUnixTimestamp(p), pending)) AS pending
FROM rollups FINAL
ORDER BY name, version
