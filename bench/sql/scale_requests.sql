-- One hour of edge requests of every sixth project, by Zipf's law. Parameters: projects; events: of all projects in that hour; from: unix seconds.
INSERT INTO edge_logs (project, timestamp, evaluated_at, families, refs)
WITH
    toUInt32(pow({projects:UInt32}, sipHash64(number, 1) / 18446744073709551616)) - 1 AS rank,
    substring(translate(hex(sipHash128(rank)), '0123456789ABCDEF', 'ghijklmnopqrstuv'), 1, 20) AS ref
SELECT '', fromUnixTimestamp64Micro(toInt64(({from:UInt32} + 3599 * number / {events:UInt64}) * 1000000) + sipHash64(number, 9) % 1000000, 'UTC') AS timestamp, toDateTime64(timestamp, 3, 'UTC'), [1, 1, 2, 4, 8, 0][1 + sipHash64(number, 2) % 6], [toFixedString(ref, 20)]
FROM numbers({events:UInt64})
WHERE rank % 6 = 3
