"""Produces the events on stdin with Confluent's AvroSerializer, which registers the schema, and prints their offsets.

Arguments: brokers, topic, URL of the schema registry, file of the schema. stdin: one JSON object per line. stdout: one offset per line, in the order of stdin.
"""
import json
import sys

from confluent_kafka import KafkaException, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

brokers, topic, registry, schema = sys.argv[1:]
serialize = AvroSerializer(SchemaRegistryClient({"url": registry}), open(schema, encoding="utf-8").read())
producer = Producer({"bootstrap.servers": brokers, "message.timeout.ms": 30_000})
offsets = {}

for index, line in enumerate(sys.stdin):
    def delivered(error, message, index=index):
        if error is not None:
            raise KafkaException(error)
        offsets[index] = message.offset()
    value = serialize(json.loads(line), SerializationContext(topic, MessageField.VALUE))
    producer.produce(topic, value=value, on_delivery=delivered)
left = producer.flush(30)
if left > 0:
    sys.exit(f"{left} records were not delivered")
for index in sorted(offsets):
    print(offsets[index])
