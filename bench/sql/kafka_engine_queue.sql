-- What ClickHouse's own Kafka engine reads: a message is one row, its bytes one value. More settings follow this text (ingest.ts).
CREATE TABLE edge_queue (value String) ENGINE = Kafka
SETTINGS kafka_broker_list = '{brokers}', kafka_topic_list = '{topic}', kafka_group_name = '{group}', kafka_format = 'RawBLOB'
