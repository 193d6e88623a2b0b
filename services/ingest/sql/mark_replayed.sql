-- Marks a dead letter as replayed. Parameters: topic, incarnation, partition, offset. Writes one row; marked twice is marked once.
INSERT INTO dead_letter_replays
SELECT {topic:String}, {incarnation:UInt32}, {partition:UInt32}, {offset:UInt64}, now64(3, 'UTC')
