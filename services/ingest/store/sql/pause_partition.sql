-- Pauses one partition. Parameters: topic, partition, incarnation, next, bad, messages, seconds. Writes one row; paused twice is paused until the later end.
INSERT INTO paused_partitions
SELECT
    {topic:String}, {partition:UInt32}, {incarnation:UInt32}, {next:UInt64}, {bad:UInt64}, {messages:UInt64},
    now64(3, 'UTC'), now64(3, 'UTC') + toIntervalSecond({seconds:UInt32}),
    (SELECT max(version) FROM paused_partitions WHERE topic = {topic:String} AND partition = {partition:UInt32}) + 1
