"""The workloads of `bench/peers.py` with Bytewax."""

import json
import os

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSinkMessage, KafkaSource, KafkaSourceMessage
from bytewax.connectors.kafka import operators as kop
from bytewax.dataflow import Dataflow, Stream

BROKERS = [os.environ["PEER_BROKER"]]


def w1(messages: Stream) -> Stream:
    orders = op.map("decode", messages, lambda message: (message.key, json.loads(message.value)))
    general = op.filter("general", orders, lambda pair: pair[1]["orderType"] == "GENERAL")
    return op.map("encode", general, lambda pair: KafkaSinkMessage(
        pair[0], json.dumps(pair[1]["finalAmount"]).encode()
    ))


def w2(messages: Stream) -> Stream:
    orders = op.map("decode", messages, _keyed_order)
    counts = op.stateful_map("count", orders, _count)
    return op.map("encode", counts, lambda pair: KafkaSinkMessage(
        pair[0].encode(), json.dumps(pair[1]).encode()
    ))


def _keyed_order(message: KafkaSourceMessage) -> tuple[str, dict]:
    return message.key.decode(), json.loads(message.value)


def _count(total: int | None, order: dict) -> tuple[int, int]:
    total = (total or 0) + 1
    return total, total


flow = Dataflow("orders")
source: Stream = op.input("orders", flow, KafkaSource(BROKERS, [os.environ["PEER_INPUT"]]))
outputs = (w1 if os.environ["PEER_WORKLOAD"] == "W1" else w2)(source)
kop.output("output", outputs, brokers=BROKERS, topic=os.environ["PEER_OUTPUT"])
