-- The catalogue of rollups as it is now; retired versions too. Reads rollups; one row per rollup and version, ascending.
SELECT
    name,
    version,
    source,
    tables,
    state,
    toUnixTimestamp(complete_from) AS complete_from,
    toUnixTimestamp(built_from) AS built_from,
    toUnixTimestamp(covered_from) AS covered_from,
    toUnixTimestamp(audited_to) AS audited_to,
    differences,
    toUnixTimestamp(differs_from) AS differs_from
FROM rollups FINAL
ORDER BY name, version
