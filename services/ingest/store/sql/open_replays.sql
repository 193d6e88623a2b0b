-- Dead letters whose replay was announced and is not done. Parameters: seconds (announced at least so long ago). One row per letter.
-- Reads dead_letter_replays in its sorting order.
SELECT kafka_topic AS topic, kafka_incarnation AS incarnation, kafka_partition AS partition, kafka_offset AS offset
FROM dead_letter_replays
GROUP BY topic, incarnation, partition, offset
HAVING NOT max(done) AND max(replayed_at) <= now64(3, 'UTC') - toIntervalSecond({seconds:UInt32})
ORDER BY topic, incarnation, partition, offset
