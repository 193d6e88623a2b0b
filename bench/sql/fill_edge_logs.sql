-- Edge events of a platform straight into the raw table, whose views fill the rollups as they do for ingest.
-- Parameters: first, rows: which events; total: of how many; seed; refs: the projects, the busiest first; now_micros: the time of the newest; messages: what they are as JSON text, by chance.
-- In the order of time over the seven days before now_micros; the project of rank r has a share that falls with r^(2/3): busy ones and many quiet ones.
INSERT INTO edge_logs (project, timestamp, id, url, host, path, method, status_code, families, refs, refs_overflow, message, kafka_topic, kafka_incarnation, kafka_partition, kafka_offset, batch_last, evaluated_at, rules, period)
WITH
    {refs:Array(String)} AS projects,
    sipHash64(number, {seed:UInt64}) AS random,
    projects[1 + toUInt32(length(projects) * pow((random % 1000003) / 1000003, 3))] AS ref,
    1 + intDiv(random, 1000003) % 6 AS family,
    ['/rest/v1/todos', '/rest/v1/rpc/search', '/storage/v1/object/avatars', '/auth/v1/token', '/realtime/v1/websocket', '/functions/v1/hello'][family] AS request_path,
    fromUnixTimestamp64Micro(toInt64({now_micros:Int64} - (1 - number / {total:UInt64}) * 604800000000), 'UTC') AS at
SELECT
    ref, at, toString(random), concat('https://', ref, '.supabase.co', request_path, '?select=*&id=eq.', toString(random % 100000)), concat(ref, '.supabase.co'), request_path, 'GET', 200,
    [1, 1, 2, 4, 8, 0][family], [toFixedString(ref, 20)], false, {messages:Array(String)}[1 + random % length({messages:Array(String)})], 'edge_logs', 1, 0, number, number, toDateTime64(at, 3, 'UTC'), 1, toStartOfDay(at - INTERVAL 1 HOUR, 'UTC')
FROM numbers({first:UInt64}, {rows:UInt64})
