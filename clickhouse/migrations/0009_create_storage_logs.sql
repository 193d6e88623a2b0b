-- Object storage logs: the same columns as postgres_logs.
CREATE TABLE storage_logs AS postgres_logs;

CREATE TABLE storage_logs_landing AS postgres_logs_landing;

CREATE MATERIALIZED VIEW storage_logs_mv TO storage_logs AS
SELECT * EXCEPT (original, record_time, reason, detail, key, headers)
FROM storage_logs_landing
WHERE reason = '';

CREATE MATERIALIZED VIEW dead_letters_of_storage_logs_mv TO dead_letters AS
SELECT
    'storage_logs' AS source, kafka_topic, kafka_incarnation, kafka_partition, kafka_offset, batch_last, judged_at,
    record_time, reason, detail, key, headers, if(original = '', message, original) AS value
FROM storage_logs_landing
WHERE reason != '';
