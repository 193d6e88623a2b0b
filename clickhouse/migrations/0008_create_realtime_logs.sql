-- Realtime logs: the same columns as postgres_logs.
CREATE TABLE realtime_logs AS postgres_logs;

CREATE TABLE realtime_logs_landing AS postgres_logs_landing;

CREATE MATERIALIZED VIEW realtime_logs_mv TO realtime_logs AS
SELECT * EXCEPT (original, record_time, reason, detail, key, headers)
FROM realtime_logs_landing
WHERE reason = '';

CREATE MATERIALIZED VIEW dead_letters_of_realtime_logs_mv TO dead_letters AS
SELECT
    'realtime_logs' AS source, kafka_topic, kafka_incarnation, kafka_partition, kafka_offset, batch_last, judged_at,
    record_time, reason, detail, key, headers, if(original = '', message, original) AS value
FROM realtime_logs_landing
WHERE reason != '';
