"""The workloads of `bench/peers.py` with Faust."""

import os

import faust


class Order(faust.Record, serializer="json"):
    orderId: int  # noqa: N815
    locationId: str  # noqa: N815
    finalAmount: float  # noqa: N815
    orderType: str  # noqa: N815
    orderedDateTime: str  # noqa: N815


app = faust.App(
    os.environ["PEER_APPLICATION"], broker=f"kafka://{os.environ['PEER_BROKER']}",
    topic_partitions=4,
)
orders = app.topic(os.environ["PEER_INPUT"], key_type=str, value_type=Order)

if os.environ["PEER_WORKLOAD"] == "W1":
    output = app.topic(os.environ["PEER_OUTPUT"], key_type=str, value_type=float)

    @app.agent(orders)
    async def filter_amounts(stream: faust.Stream[Order]) -> None:
        async for key, order in stream.items():
            if order.orderType == "GENERAL":
                await output.send(key=key, value=order.finalAmount)
else:
    output = app.topic(os.environ["PEER_OUTPUT"], key_type=str, value_type=int)
    counts = app.Table("counts", key_type=str, value_type=int, default=int)

    @app.agent(orders)
    async def count(stream: faust.Stream[Order]) -> None:
        async for key, _ in stream.items():
            counts[key] += 1
            await output.send(key=key, value=counts[key])
