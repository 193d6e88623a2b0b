-- Announces the replay of one dead letter; under its token the first announcement counts.
-- Parameters: topic, incarnation, partition, offset, evaluated_at (unix ms), rules, period (unix s), timestamp (of the event, unix micros). Writes one row.
INSERT INTO dead_letter_replays (kafka_topic, kafka_incarnation, kafka_partition, kafka_offset, done, evaluated_at, rules, period, timestamp)
SELECT {topic:String}, {incarnation:UInt32}, {partition:UInt32}, {offset:UInt64}, false,
    fromUnixTimestamp64Milli({evaluated_at:Int64}, 'UTC'), {rules:UInt16}, toDateTime({period:UInt32}, 'UTC'), fromUnixTimestamp64Micro({timestamp:Nullable(Int64)}, 'UTC')
