"""Produces the records on stdin with librdkafka and prints their delivery reports.

Arguments: brokers, compression.type, optionally `one-batch` (all records of a partition in one record batch). stdin: one JSON object per line, {"topic", "partition"?, "key", "value", "headers": [[name, value]], "timestamp"?},
bytes in base64 or null. stdout: one JSON object per record, in the order of stdin, {"topic", "partition", "offset"}.
"""
import base64
import json
import sys

from confluent_kafka import KafkaException, Producer

def decode(text):
    return None if text is None else base64.b64decode(text)

producer = Producer({
    "bootstrap.servers": sys.argv[1],
    "compression.type": sys.argv[2],
    "message.max.bytes": 15 * 1024 * 1024,
    "queue.buffering.max.messages": 1_000_000,
    "linger.ms": 50,
    "message.timeout.ms": 30_000,
    **({"linger.ms": 3_000, "batch.num.messages": 1_000_000, "batch.size": 100_000_000} if "one-batch" in sys.argv else {}),
})
reports = []

def produce(index, record):
    def delivered(error, message):
        if error is not None:
            raise KafkaException(error)
        reports[index] = {"topic": message.topic(), "partition": message.partition(), "offset": str(message.offset())}
    reports.append(None)
    optional = {name: record[name] for name in ("partition", "timestamp") if name in record}
    headers = [(name, decode(value)) for name, value in record["headers"]]
    producer.produce(record["topic"], key=decode(record["key"]), value=decode(record["value"]), headers=headers, on_delivery=delivered, **optional)
    producer.poll(0)

for index, line in enumerate(sys.stdin):
    produce(index, json.loads(line))
left = producer.flush(30)
if left > 0:
    sys.exit(f"{left} records were not delivered")
for report in reports:
    print(json.dumps(report))
