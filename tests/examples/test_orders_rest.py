"""The REST interface of the orders application, with two instances."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from orders.model import Order
from orders.rest import APPLICATION, create_rest
from orders.test_orders import general, restaurant
from orders.topology import ORDERS, STORES, build

from engine.instances import PATIENCE_S, until
from penstock import Serdes, Streams, StreamsConfig
from penstock.log import Log, RecordColumns, open_log
from penstock.queries.http import HttpSettings, Server

TOPICS = (
    ORDERS, STORES, "general-orders", "restaurant-orders", "general-orders-revenue",
    "restaurant-orders-revenue",
)


class Instances:
    """Two instances of the application, each with its own state and its own port."""

    def __init__(self, log: Log, folder: Path, stack: ExitStack) -> None:
        self.log = log
        self.streams: list[Streams] = []
        self.urls: list[str] = []
        for name in ("one", "two"):
            settings = HttpSettings(port=0)
            streams = Streams(
                build(),
                StreamsConfig(
                    application_id=APPLICATION, log=log.address, state_dir=str(folder / name),
                    application_server=f"{name}.example:8080", num_standby_replicas=1,
                ),
                master="inline",
            )
            stack.callback(streams.close)
            streams.start()
            server = stack.enter_context(Server(create_rest(streams, settings), settings))
            self.streams.append(streams)
            self.urls.append(server.url)
            until(lambda streams=streams: streams.waits_for or streams.state.value == "RUNNING")

    def send(self, *orders: Order) -> None:
        serialize = Serdes.json(Order).serialize
        self.log.append(ORDERS, 0, RecordColumns(
            [None] * len(orders), [serialize(order) for order in orders]
        ))
        self.streams[0].run_until_caught_up(PATIENCE_S)

    def get(self, path: str) -> list[Any]:
        """Return the responses of both instances, once the standby has the same."""
        found: list[Any] = []

        def agree() -> bool:
            found[:] = [read(url + path) for url in self.urls]
            return bool(found[0] == found[1])

        until(agree)
        return found[0]  # type: ignore[no-any-return]


def read(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.fixture
def instances(tmp_path: Path) -> Iterator[Instances]:
    with open_log(tmp_path / "log.db") as log, ExitStack() as stack:
        for topic in TOPICS:
            log.create_topic(topic, 2, {"retention.ms": -1})
        yield Instances(log, tmp_path, stack)


@pytest.mark.slow
def test_both_instances_serve_all_tables(instances: Instances) -> None:
    instances.send(general(), restaurant())
    assert instances.get("/v1/orders/count/general_orders?location_id=store_1234") == {
        "locationId": "store_1234", "orderCount": 1
    }
    instances.send(general(), restaurant())
    assert instances.get(
        "/v1/orders/count/restaurant_orders?location_id=store_1234&query_other_hosts=false"
    ) == {"locationId": "store_1234", "orderCount": 2}
    assert instances.get("/v1/orders/count") == [
        {"locationId": "store_1234", "orderCount": 2, "orderType": "general_orders"},
        {"locationId": "store_1234", "orderCount": 2, "orderType": "restaurant_orders"},
    ]
    revenue = instances.get("/v1/orders/revenue/general_orders?location_id=store_1234")
    assert revenue == {
        "locationId": "store_1234", "orderType": "general_orders",
        "totalRevenue": {
            "locationId": "store_1234", "runningOrderCount": 2, "runningRevenue": "54.00"
        },
    }
    assert [row["totalRevenue"]["runningRevenue"] for row in instances.get("/v1/orders/revenue")
            ] == ["54.00", "30.00"]
    assert instances.get("/v1/orders/windows/count/general_orders") == [{
        "locationId": "store_1234", "orderCount": 2, "orderType": "general_orders",
        "startWindow": "2022-12-05T08:55:00+00:00", "endWindow": "2022-12-05T08:56:00+00:00",
    }]
    later = "/v1/orders/windows/count?from_time=2022-12-05T08:56:00&to_time=2022-12-05T09:00:00"
    assert instances.get(later) == []
    (window,) = instances.get("/v1/orders/windows/revenue/restaurant_orders")
    assert window["totalRevenue"]["runningRevenue"] == "30.00"
    assert instances.get("/v1/orders/count/general_orders?location_id=nowhere") == 404
    assert instances.get("/v1/orders/count/other_orders") == 422
    hosts = [{"host": "one.example", "port": 8080}, {"host": "two.example", "port": 8080}]
    until(lambda: instances.get("/v1/metadata/all") == hosts)
    # The role of an instance follows with its next heartbeat.
    active = {**hosts[0], "key": "store_1234"}
    until(lambda: instances.get("/v1/metadata/general_orders/store_1234") == active)
    location = "/state/stores/general_orders_count/location?key=store_1234"
    assert instances.get(location)["active"] == hosts[0]
    assert instances.get(location)["standbys"] == hosts[1:]
    assert instances.get("/state/stores/general_orders_count/keys/store_1234")["value"] == 2
