"""The workloads of `bench/peers.py` with Pathway."""

import json
import os

import pathway as pw


@pw.udf
def general_amount(value: str) -> float | None:
    order = json.loads(value)
    return order["finalAmount"] if order["orderType"] == "GENERAL" else None


def w1(messages: pw.Table) -> pw.Table:
    amounts = messages.select(pw.this.key, value=general_amount(pw.this.data))
    return amounts.filter(pw.this.value.is_not_none())


def w2(messages: pw.Table) -> pw.Table:
    return messages.groupby(pw.this.key).reduce(pw.this.key, value=pw.reducers.count())


settings = {
    "bootstrap.servers": os.environ["PEER_BROKER"], "group.id": os.environ["PEER_APPLICATION"],
    "auto.offset.reset": "earliest",
}
workload = {"W1": w1, "W2": w2}[os.environ["PEER_WORKLOAD"]]
messages = pw.io.kafka.read(
    settings, topic=os.environ["PEER_INPUT"], format="plaintext",
    # Otherwise an order would replace the one before with the same key.
    autogenerate_key=True,
)
outputs = workload(messages)
pw.io.kafka.write(
    outputs, settings, os.environ["PEER_OUTPUT"], format="json", key=outputs.key,
)
backend = pw.persistence.Backend.filesystem(os.environ["PEER_FOLDER"])
pw.run(
    monitoring_level=pw.MonitoringLevel.NONE,
    persistence_config=pw.persistence.Config(backend, snapshot_interval_ms=10_000),
)
