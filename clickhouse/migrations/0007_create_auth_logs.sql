-- Authentication logs: the same columns as postgres_logs.
CREATE TABLE auth_logs AS postgres_logs;

CREATE TABLE auth_logs_landing AS postgres_logs_landing;

CREATE MATERIALIZED VIEW auth_logs_mv TO auth_logs AS
SELECT * EXCEPT (original, record_time, reason, detail, key, headers)
FROM auth_logs_landing
WHERE reason = '';

CREATE MATERIALIZED VIEW dead_letters_of_auth_logs_mv TO dead_letters AS
SELECT
    'auth_logs' AS source, kafka_topic, kafka_incarnation, kafka_partition, kafka_offset, batch_last, judged_at,
    record_time, reason, detail, key, headers, if(original = '', message, original) AS value
FROM auth_logs_landing
WHERE reason != '';
