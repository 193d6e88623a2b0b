-- Marks a dead letter as replayed, with the time of its event. Parameters: source, topic, incarnation, partition, offset.
-- Reads the Kafka coordinates of the raw table. Writes one row; marked twice is marked once.
INSERT INTO dead_letter_replays (kafka_topic, kafka_incarnation, kafka_partition, kafka_offset, replayed_at, timestamp)
SELECT
    {topic:String}, {incarnation:UInt32}, {partition:UInt32}, {offset:UInt64}, now64(3, 'UTC'),
    (
        SELECT minOrNull(timestamp)
        FROM {source:Identifier}
        WHERE kafka_topic = {topic:String} AND kafka_incarnation = {incarnation:UInt32} AND kafka_partition = {partition:UInt32} AND kafka_offset = {offset:UInt64}
    )
