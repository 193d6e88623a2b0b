-- All dead letters by topic and reason, and how many of them were replayed. Reads five columns of dead_letters and all marks (an announced replay has none yet); one row per topic and reason.
SELECT d.kafka_topic AS topic, d.reason AS reason, count() AS letters, countIf(r.replayed_at != toDateTime64(0, 3, 'UTC')) AS replayed
FROM dead_letters AS d
LEFT ANY JOIN (SELECT * FROM dead_letter_replays WHERE done) AS r USING (kafka_topic, kafka_incarnation, kafka_partition, kafka_offset)
GROUP BY topic, reason
ORDER BY topic, reason
