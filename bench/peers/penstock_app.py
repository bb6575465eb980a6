"""The workloads of `bench/peers.py` with penstock."""

import os

from penstock import Serdes, StreamsBuilder, StreamsConfig, Topology

STRING = Serdes.string()

config = StreamsConfig(
    application_id=os.environ["PEER_APPLICATION"],
    log=f"kafka://{os.environ['PEER_BROKER']}",
    state_dir=os.environ["PEER_FOLDER"],
    processing_guarantee=os.environ["PEER_GUARANTEE"].replace(" ", "_"),
    num_stream_threads=2,
    # Every update is written, as by the others.
    statestore_cache_max_bytes=0,
    extra={
        "auto.offset.reset": "earliest",
        # As the members of the other groups. After a suspension for longer than the default of
        # 6 s, the application would have to acquire its lease again.
        "session.timeout.ms": "45000",
    },
)


def topology() -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream(os.environ["PEER_INPUT"], key=STRING, value=Serdes.json())
    output = os.environ["PEER_OUTPUT"]
    if os.environ["PEER_WORKLOAD"] == "W1":
        (
            orders.filter(lambda key, order: order["orderType"] == "GENERAL")
            .map_values(lambda order: order["finalAmount"])
            .to(output, key=STRING, value=Serdes.double())
        )
    else:
        (
            orders.group_by_key().count(store="counts")
            .to_stream().to(output, key=STRING, value=Serdes.long())
        )
    return builder.build()
