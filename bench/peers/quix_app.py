"""The workloads of `bench/peers.py` with Quix Streams."""

import os

from quixstreams import Application, State
from quixstreams.dataframe import StreamingDataFrame

exactly_once = os.environ["PEER_GUARANTEE"] == "exactly once"
app = Application(
    broker_address=os.environ["PEER_BROKER"],
    consumer_group=os.environ["PEER_APPLICATION"],
    auto_offset_reset="earliest",
    processing_guarantee="exactly-once" if exactly_once else "at-least-once",
    # Outputs of a transaction are visible after its commit. The default is 5 s.
    commit_interval=1.0 if exactly_once else 5.0,
    state_dir=os.environ["PEER_FOLDER"],
    loglevel="WARNING",
)
orders = app.topic(os.environ["PEER_INPUT"], key_deserializer="str", value_deserializer="json")
output = app.topic(os.environ["PEER_OUTPUT"], key_serializer="str", value_serializer="json")


def count(order: dict, state: State) -> int:
    total = state.get("count", 0) + 1
    state.set("count", total)
    return total


def w1(stream: StreamingDataFrame) -> StreamingDataFrame:
    return stream.filter(lambda order: order["orderType"] == "GENERAL").apply(
        lambda order: order["finalAmount"]
    )


def w2(stream: StreamingDataFrame) -> StreamingDataFrame:
    return stream.apply(count, stateful=True)


if __name__ == "__main__":
    workload = {"W1": w1, "W2": w2}[os.environ["PEER_WORKLOAD"]]
    workload(app.dataframe(orders)).to_topic(output)
    app.run()
