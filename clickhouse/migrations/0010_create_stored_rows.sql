-- The Kafka coordinates of the rows of all raw tables, for the account of offsets.
CREATE VIEW stored_rows AS
SELECT 'edge_logs' AS source, kafka_topic, kafka_incarnation, kafka_partition, kafka_offset, batch_last, period FROM edge_logs
UNION ALL
SELECT 'postgres_logs' AS source, kafka_topic, kafka_incarnation, kafka_partition, kafka_offset, batch_last, period FROM postgres_logs
UNION ALL
SELECT 'function_edge_logs' AS source, kafka_topic, kafka_incarnation, kafka_partition, kafka_offset, batch_last, period FROM function_edge_logs
UNION ALL
SELECT 'function_logs' AS source, kafka_topic, kafka_incarnation, kafka_partition, kafka_offset, batch_last, period FROM function_logs
UNION ALL
SELECT 'auth_logs' AS source, kafka_topic, kafka_incarnation, kafka_partition, kafka_offset, batch_last, period FROM auth_logs
UNION ALL
SELECT 'realtime_logs' AS source, kafka_topic, kafka_incarnation, kafka_partition, kafka_offset, batch_last, period FROM realtime_logs
UNION ALL
SELECT 'storage_logs' AS source, kafka_topic, kafka_incarnation, kafka_partition, kafka_offset, batch_last, period FROM storage_logs
UNION ALL
SELECT 'postgrest_logs' AS source, kafka_topic, kafka_incarnation, kafka_partition, kafka_offset, batch_last, period FROM postgrest_logs
UNION ALL
SELECT 'pgbouncer_logs' AS source, kafka_topic, kafka_incarnation, kafka_partition, kafka_offset, batch_last, period FROM pgbouncer_logs;
