-- Invocations of functions straight into the raw table, whose views fill the rollups as they do for ingest; see fill_edge_logs.sql.
-- Eight functions a project, execution times with a long tail, one in 50 failed.
INSERT INTO function_edge_logs (project, timestamp, id, function_id, is_invocation, status_code, execution_time_ms, message, kafka_topic, kafka_incarnation, kafka_partition, kafka_offset, batch_last, evaluated_at, rules, period)
WITH
    {refs:Array(String)} AS projects,
    sipHash64(number, {seed:UInt64}) AS random,
    projects[1 + toUInt32(length(projects) * pow((random % 1000003) / 1000003, 3))] AS ref,
    intDiv(random, 1000003) AS more,
    fromUnixTimestamp64Micro(toInt64({now_micros:Int64} - (1 - number / {total:UInt64}) * 604800000000), 'UTC') AS at
SELECT
    ref, at, toString(random), concat('function-', toString(more % 8)), true, if(intDiv(more, 8) % 50 = 0, 500, 200), 5 / (1.001 - (intDiv(more, 400) % 1000) / 1000),
    '{}', 'function_edge_logs', 1, 0, number, number, toDateTime64(at, 3, 'UTC'), 1, toStartOfDay(at - INTERVAL 1 HOUR, 'UTC')
FROM numbers({first:UInt64}, {rows:UInt64})
