-- One hour of invocations of every sixth project, by Zipf's law, and of its 20 functions by the same. Parameters: projects; events: of all projects in that hour; from: unix seconds.
INSERT INTO function_edge_logs (project, timestamp, evaluated_at, function_id, is_invocation, status_code, execution_time_ms)
WITH
    toUInt32(pow({projects:UInt32}, sipHash64(number, 1) / 18446744073709551616)) - 1 AS rank,
    toUInt32(pow(20, sipHash64(number, 2) / 18446744073709551616)) AS function,
    substring(translate(hex(sipHash128(rank)), '0123456789ABCDEF', 'ghijklmnopqrstuv'), 1, 20) AS ref
SELECT ref, fromUnixTimestamp64Micro(toInt64(({from:UInt32} + 3599 * number / {events:UInt64}) * 1000000) + sipHash64(number, 9) % 1000000, 'UTC') AS timestamp, toDateTime64(timestamp, 3, 'UTC'), toString(reinterpretAsUUID(sipHash128(rank, function))), true, if(sipHash64(number, 3) % 50 = 0, 500, 200),
    toFloat64(toUInt32(exp(4 + sqrt(-2 * log(sipHash64(number, 4) / 18446744073709551616 + 1e-12)) * cos(2 * pi() * sipHash64(number, 5) / 18446744073709551616)))) + 1
FROM numbers({events:UInt64})
WHERE rank % 6 = 3
