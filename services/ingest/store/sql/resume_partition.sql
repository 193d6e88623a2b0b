-- Ends the pause of one partition. Parameters: topic, partition. Writes one row where it is paused, else none.
INSERT INTO paused_partitions
SELECT p.topic, p.partition, p.incarnation, p.next, p.bad, p.messages, p.paused_at, now64(3, 'UTC'), p.version + 1
FROM paused_partitions AS p FINAL
WHERE p.topic = {topic:String} AND p.partition = {partition:UInt32} AND p.until > now64(3, 'UTC')
