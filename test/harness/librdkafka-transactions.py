"""Produces on partition 0 of a topic in several transactions at once.

Arguments: brokers, topic. stdin: one JSON object per line, in the order of the log: {"transaction"?, "value"} (begins the transaction where it is new;
without one: an ordinary record), {"commit": transaction} or {"abort": transaction}.
"""
import json
import sys
import uuid

from confluent_kafka import Producer

brokers, topic = sys.argv[1:3]
producers = {}

def producer(transaction):
    if transaction not in producers:
        options = {"bootstrap.servers": brokers, "linger.ms": 0}
        if transaction is not None:
            options["transactional.id"] = str(uuid.uuid4())
        producers[transaction] = Producer(options)
        if transaction is not None:
            producers[transaction].init_transactions()
            producers[transaction].begin_transaction()
    return producers[transaction]

for line in sys.stdin:
    step = json.loads(line)
    if "commit" in step:
        producer(step["commit"]).commit_transaction()
    elif "abort" in step:
        producer(step["abort"]).abort_transaction()
    else:
        current = producer(step.get("transaction"))
        current.produce(topic, value=step["value"], partition=0)
        if current.flush(30) > 0:
            sys.exit("a record was not delivered")
