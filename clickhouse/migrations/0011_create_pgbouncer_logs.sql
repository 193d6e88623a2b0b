-- Connection pooler logs: the same columns as postgres_logs.
CREATE TABLE pgbouncer_logs AS postgres_logs;

CREATE TABLE pgbouncer_logs_landing AS postgres_logs_landing;

CREATE MATERIALIZED VIEW pgbouncer_logs_mv TO pgbouncer_logs AS
SELECT * EXCEPT (original, record_time, reason, detail, key, headers)
FROM pgbouncer_logs_landing
WHERE reason = '';

CREATE MATERIALIZED VIEW dead_letters_of_pgbouncer_logs_mv TO dead_letters AS
SELECT
    'pgbouncer_logs' AS source, kafka_topic, kafka_incarnation, kafka_partition, kafka_offset, batch_last, judged_at,
    record_time, reason, detail, key, headers, if(original = '', message, original) AS value
FROM pgbouncer_logs_landing
WHERE reason != '';
