-- Serverless function event logs: the same columns as postgres_logs.
CREATE TABLE function_logs AS postgres_logs;

CREATE TABLE function_logs_landing AS postgres_logs_landing;

CREATE MATERIALIZED VIEW function_logs_mv TO function_logs AS
SELECT * EXCEPT (original, record_time, reason, detail, key, headers)
FROM function_logs_landing
WHERE reason = '';

CREATE MATERIALIZED VIEW dead_letters_of_function_logs_mv TO dead_letters AS
SELECT
    'function_logs' AS source, kafka_topic, kafka_incarnation, kafka_partition, kafka_offset, batch_last, judged_at,
    record_time, reason, detail, key, headers, if(original = '', message, original) AS value
FROM function_logs_landing
WHERE reason != '';
