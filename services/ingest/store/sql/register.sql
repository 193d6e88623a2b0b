-- What ingest checks before every insert, from a read at most two seconds old (register.ts):
-- the newest period, the engine's time (unix ms), and who may write which partition. No parameters.
-- Reads rollup_periods and partition_owners. One row; owners: (topic, partition, group, epoch, the group before it or '',
-- whether the claim is settled: no other group had it, or this one has claimed it twice; the shard of the first claim).
SELECT
    (SELECT toUInt32(max(begin)) FROM rollup_periods) AS period,
    toUnixTimestamp64Milli(now64(3, 'UTC')) AS now,
    (
        SELECT groupArray((topic, partition, claims[1].2, claims[1].1, arrayFirst(c -> c.2 != claims[1].2, claims).2 AS former, former = '' OR claims[2].2 = claims[1].2, claims[-1].3))
        FROM
        (
            SELECT topic, partition, arrayReverseSort(groupArray((epoch, consumer_group, shard))) AS claims
            FROM partition_owners
            GROUP BY topic, partition
        )
    ) AS owners
