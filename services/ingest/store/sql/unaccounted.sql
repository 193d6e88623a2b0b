-- Rows and dead letters that no ledger row covers, per topic, incarnation and partition: batches in flight, or orphan rows.
-- Parameters: kept_since (unix ms; of what was written before, ledger rows may have expired. A row's period begins at most a day before that).
-- Reads batches, dead_letters and of the nine raw tables the Kafka coordinates.
SELECT kafka_topic AS topic, kafka_incarnation AS incarnation, kafka_partition AS partition, count() AS rows, min(kafka_offset) AS first, max(kafka_offset) AS last
FROM
(
    SELECT kafka_topic, kafka_incarnation, kafka_partition, batch_last, kafka_offset FROM stored_rows WHERE period >= toDateTime(intDiv({kept_since:Int64}, 1000), 'UTC')
    UNION ALL
    SELECT kafka_topic, kafka_incarnation, kafka_partition, batch_last, kafka_offset FROM dead_letters WHERE toUnixTimestamp64Milli(inserted_at) >= {kept_since:Int64}
)
WHERE (kafka_topic, kafka_partition, kafka_incarnation, batch_last) NOT IN (SELECT topic, partition, incarnation, last FROM batches)
GROUP BY topic, incarnation, partition
ORDER BY topic, incarnation, partition
