-- Claims one partition for a group. Under the token of its epoch only the first of two claims counts. Parameters: topic, partition, epoch, group, shard.
INSERT INTO partition_owners (topic, partition, epoch, consumer_group, shard)
SELECT {topic:String}, {partition:UInt32}, {epoch:UInt64}, {group:String}, {shard:String}
